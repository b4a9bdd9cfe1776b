// The search over schedules and rewrites of row programs.
#pragma once

#include <memory>

#include "base/status.h"
#include "generators/generator.h"
#include "signature/device_arch.h"
#include "signature/op_signature.h"

namespace cudaforge::rows {

// As in Generator.
Result<std::unique_ptr<CandidateSearch>> MakeRowSearch(const OpSignature& signature,
                                                       const DeviceArch& arch);

}  // namespace cudaforge::rows
