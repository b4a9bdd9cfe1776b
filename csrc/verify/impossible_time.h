// A time in which no device of this kind can do a region's work.
#pragma once

#include "kernel/verdict.h"
#include "signature/device_arch.h"
#include "signature/op_signature.h"

namespace cudaforge {

// kImpossibleTime where a kernel took less than half of what the bytes that it must move, beyond
// what the L2 cache holds, take at the bandwidth of the data sheet: the memory's clock, twice,
// times the width of its bus, as the driver tells them. It must write the outputs, and read the
// inputs that are added up as they are (a sum, a norm, a softmax). Of other inputs a kernel may
// need but a part. Accepted otherwise, and where bandwidth and cache are not known: on the CPU
// always. `ns`: of one run.
Verdict JudgeTime(const OpSignature& region, const DeviceArch& arch, double ns);

}  // namespace cudaforge
