// Facts of the host processor, read from the processor and the kernel.
#pragma once

#include <cstdint>

#include "signature/device_arch.h"

namespace cudaforge {

// Physical cores that this process may run on; at least 1.
int PhysicalCores();

// Bytes of the last level cache; 32 MiB when the kernel does not tell.
int64_t LastLevelCacheBytes();

// target "cpu:x86-64-v3+1f0c93ab" (or "cpu:aarch64": the machine's name elsewhere); name, isa
// (exact, because -march=native depends on it), cores, logical_cpus, cache sizes.
DeviceArch DescribeCpu();

}  // namespace cudaforge
