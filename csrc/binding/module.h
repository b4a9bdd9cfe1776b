// The parts of the module `_C`; python/cudaforge_backend/_C.pyi is their description for Python.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "binding/errors.h"

namespace cudaforge::binding {

void BindSignature(pybind11::module_& m);  // op lists, signatures, RegionProgram
void BindStore(pybind11::module_& m);      // KernelStore, the store in use
void BindForge(pybind11::module_& m);      // search, race, records of what was found
void BindDispatch(pybind11::module_& m);   // install, statistics of calls
void BindEager(pybind11::module_& m);      // interception of eager calls
void BindForks(pybind11::module_& m);      // what forks of Python wait for
void BindAgents(pybind11::module_& m);     // sessions of agents
void BindPacks(pybind11::module_& m);      // packs: written here, proven before they are stored
void BindMachine(pybind11::module_& m);  // configuration, devices, capabilities, interleaved timing

// Calls the function `function` of cudaforge_backend.stats with `text`: a warning. From any thread;
// after the interpreter's end there is nobody to read it. What is raised meanwhile and ends a
// program (Ctrl-C, SystemExit) is raised when this thread's Python runs again; where it has none,
// and of every Exception, it is reported as unraisable.
void TellStats(const char* function, const std::string& text);

}  // namespace cudaforge::binding
