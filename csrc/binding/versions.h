// What made the records of this build, and whether a stored one still counts.
#pragma once

#include "base/json.h"
#include "cache/record.h"

namespace cudaforge::binding {

// {"cudaforge", "torch", "verifier"}, as records carry it.
const Json& Versions();

// Whether torch and the verifier are the ones that judged the record. Another one is a miss: its
// kernel was compared with other answers, raced against other rivals, or made by a generator whose
// kernels are no longer accepted.
bool JudgedByThisBuild(const CacheRecord& record);

// Whether this process may go by the record: judged by this build, and not in doubt by another
// process.
bool Stands(const CacheRecord& record);

}  // namespace cudaforge::binding
