// What this processor measurably does with the threads of the worker's pool, by loops that the host
// compiler makes from this project's own text, with the options that candidates get:
//   bandwidth_gb_s  a[i] = b[i] + s * c[i] over three arrays of doubles, each half as large again
//                   as the last level cache (64 MiB to 256 MiB, and at most a sixteenth of the free
//                   memory); three times the bytes of an array over the time of one sweep. Stores
//                   are ordinary ones: what the caches read before they write is not counted, as it
//                   is not for a candidate either
//   fp32_tflops     fused multiply-adds in twelve independent chains of the widest vectors that the
//   fp64_tflops     compiler's -march=native has (AVX-512, AVX2 with FMA; else a multiplication and
//                   an addition on vectors of 16 bytes); two operations each
// Each is the median of up to 15 runs after one that is not counted, within a quarter of a second.
#pragma once

#include <string>

#include "base/json.h"

namespace cudaforge {

// {"bandwidth_gb_s",...,"note"}: what could not be measured (no compiler, no memory) is left out,
// and "note" says why. `wanted_cxx` as in CpuTargetOptions.
Json MeasureCpuRates(const std::string& wanted_cxx);

}  // namespace cudaforge
