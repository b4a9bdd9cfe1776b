// Loading and launching `cpu` binaries.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "target/target.h"

namespace cudaforge {

// Loads a shared object from memory and evaluates the plan. kCorruption when the loader refuses the
// bytes, kInvalidArgument when a kernel that the plan names is not in it. The library stays loaded
// as long as the result.
Result<std::unique_ptr<Executable>> LoadCpu(const std::string& binary, const Candidate& candidate,
                                            const OpSignature& signature);

}  // namespace cudaforge
