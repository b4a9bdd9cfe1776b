// Converts between Json and plain Python objects: None, bool, int, float, str, list, dict.
#pragma once

#include <pybind11/pybind11.h>

#include "base/json.h"

namespace cudaforge::binding {

// Both REQUIRE the GIL.
pybind11::object ToPython(const Json& value);
// StatusError (kInvalidArgument): other types, keys that are not strings, or nesting beyond 64.
Json FromPython(pybind11::handle value, int depth = 0);

}  // namespace cudaforge::binding
