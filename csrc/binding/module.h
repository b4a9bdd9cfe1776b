// The parts of the module `_C`; python/cudaforge_backend/_C.pyi describes them.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "binding/errors.h"

namespace cudaforge::binding {

void BindSignature(pybind11::module_& m);  // op lists, signatures, RegionProgram
void BindStore(pybind11::module_& m);      // KernelStore, the store in use
void BindForge(pybind11::module_& m);      // the forge of one region
void BindDispatch(pybind11::module_& m);   // install, statistics of calls
void BindEager(pybind11::module_& m);      // interception of eager calls
void BindAgents(pybind11::module_& m);     // settings of agents
void BindPacks(pybind11::module_& m);      // packs: written here, verified before they are stored
void BindMachine(pybind11::module_& m);  // configuration, devices, capabilities, interleaved timing

// Calls `function` of cudaforge_backend.stats with `text`: a warning. From any thread; does nothing
// after the interpreter's end. Exceptions are reported as unraisable; Ctrl-C is raised later in the
// main thread.
void CallStats(const char* function, const std::string& text);

}  // namespace cudaforge::binding
