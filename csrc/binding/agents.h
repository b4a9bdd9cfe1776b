// Regions that agents alone make kernels for: whether a store has any.
#pragma once

#include <string>

#include "cache/kernel_store.h"
#include "signature/op_signature.h"

namespace cudaforge::binding {

// Notes that `store` holds a winner for `signature`, where that is a region of agents: graphs are
// searched for such regions only where the store has some. Errors: as KernelStore::PutGraph.
Status NoteAgentRegion(KernelStore& store, const OpSignature& signature, const std::string& arch);
bool HasAgentRegions(KernelStore& store, const std::string& arch);

}  // namespace cudaforge::binding
