// A time in which no device of this kind can do a region's work.
#pragma once

#include "kernel/verdict.h"
#include "signature/device_arch.h"
#include "signature/op_signature.h"

namespace cudaforge {

// kImpossibleTime where a kernel took less than half of what the bytes that it must move, beyond
// what the L2 cache holds, take at the bandwidth of the data sheet: the memory's clock, twice,
// times the width of its bus, as the driver tells them. Accepted otherwise, and where these are not
// known: on the CPU always. Inputs that convolutions and pooling read may be passed over in steps
// and count nothing. `ns`: of one run.
Verdict JudgeTime(const OpSignature& region, const DeviceArch& arch, double ns);

}  // namespace cudaforge
