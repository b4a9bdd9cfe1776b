// Loads and launches `cpu` binaries.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "target/target.h"

namespace cudaforge {

// Loads a shared object from memory and evaluates the plan. kCorruption: the loader refuses the
// bytes. kInvalidArgument: a kernel of the plan is missing. The library stays loaded as long as the
// result.
Result<std::unique_ptr<Executable>> LoadCpu(const std::string& binary, const Candidate& candidate,
                                            const OpSignature& signature);

}  // namespace cudaforge
