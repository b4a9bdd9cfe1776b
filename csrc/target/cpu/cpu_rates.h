// Measured rates of this processor, with the worker's threads and loops that the host compiler
// makes with the options of candidates. Each is the median of up to 15 runs after a warm-up run,
// within a quarter of a second.
//   bandwidth_gb_s  a[i] = b[i] + s * c[i] over three arrays of doubles, each 1.5 times the last
//                   level cache (64 MiB to 256 MiB, and at most a sixteenth of the free memory);
//                   three times an array's bytes over the time. Stores are ordinary ones, and their
//                   read for ownership is not counted, as for candidates
//   fp32_tflops     fused multiply-adds in twelve independent chains of the widest vectors of the
//   fp64_tflops     compiler's -march=native (AVX-512, AVX2 with FMA; else a multiplication and an
//                   addition on vectors of 16 bytes); two operations each
#pragma once

#include <string>

#include "base/json.h"

namespace cudaforge {

// {"bandwidth_gb_s",...,"note"}: unmeasurable rates (no compiler, no memory) are missing, and
// "note" says why. `wanted_cxx` as in CpuTargetOptions.
Json MeasureCpuRates(const std::string& wanted_cxx);

}  // namespace cudaforge
