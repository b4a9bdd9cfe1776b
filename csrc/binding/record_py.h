// A cache record as Python sees it.
#pragma once

#include <pybind11/pybind11.h>

#include "cache/kernel_store.h"

namespace cudaforge::binding {

// All but candidate and binary, for which Python makes separate calls: see KernelStore.get in
// _C.pyi. None if evidence or signature is damaged, which `store` counts. REQUIRES: the GIL.
pybind11::object RecordDict(KernelStore& store, const CacheRecord& record);

// A list of "compiled" and "eager": CacheRecord::Serves. REQUIRES: the GIL.
pybind11::list ServesList(const CacheRecord& record);

}  // namespace cudaforge::binding
