// Detects times in which no device of this kind can do a region's work.
#pragma once

#include "kernel/verdict.h"
#include "signature/device_arch.h"
#include "signature/op_signature.h"

namespace cudaforge {

// Returns kImpossibleTime if a kernel took less than half of the least time for its memory traffic.
// The traffic: all outputs, and the inputs that are reduced unchanged (a sum, a norm, a softmax),
// minus what the L2 cache holds. The bandwidth: twice the memory clock times the bus width, from
// the driver. Accepts otherwise, and always if these are unknown or on the CPU. `ns`: of one run.
Verdict JudgeTime(const OpSignature& region, const DeviceArch& arch, double ns);

}  // namespace cudaforge
