// Python's progress callbacks for the forge.
#pragma once

#include <pybind11/pybind11.h>

#include "binding/json_py.h"
#include "forge/forge.h"

namespace cudaforge::binding {

// Calls `progress`, which it refers to, with the GIL, from any thread; what that throws ends the
// forging. None: nobody is told.
inline ForgeProgress Teller(const pybind11::object& progress) {
  if (progress.is_none()) return nullptr;
  return [&progress](const Json& event) {
    pybind11::gil_scoped_acquire acquire;
    progress(ToPython(event));
  };
}

}  // namespace cudaforge::binding
