// Loads and launches `cuda` binaries.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "target/cuda/cuda_context.h"
#include "target/target.h"

namespace cudaforge {

// Loads a cubin and evaluates the plan, and checks all limits of the device. kCorruption: a bad
// image. kInvalidArgument: a plan that this device or this kernel cannot run. kUnavailable: the
// driver is too old for the plan's tensor maps.
Result<std::unique_ptr<Executable>> LoadCuda(CudaContextPtr context, const std::string& binary,
                                             const Candidate& candidate,
                                             const OpSignature& signature);

}  // namespace cudaforge
