// A cache record as Python sees it.
#pragma once

#include <pybind11/pybind11.h>

#include "cache/kernel_store.h"

namespace cudaforge::binding {

// Everything but candidate and binary, which Python asks for by themselves: see KernelStore.get in
// _C.pyi. None, counted by `store`, where the evidence is damaged or the signature is none.
// REQUIRES: the GIL.
pybind11::object RecordDict(KernelStore& store, const CacheRecord& record);

// Out of "compiled" and "eager": CacheRecord::Serves. REQUIRES: the GIL.
pybind11::list ServesList(const CacheRecord& record);

}  // namespace cudaforge::binding
