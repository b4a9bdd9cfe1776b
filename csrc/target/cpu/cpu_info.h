// Properties of the host processor, read from the processor and the kernel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "signature/device_arch.h"

namespace cudaforge {

// The kernel's numbers of the processors that this process may use; {0} if unknown.
std::vector<int> AllowedCpus();

// The number of physical cores that this process may use; at least 1.
int PhysicalCores();

// Bytes of the last level cache; 32 MiB if unknown.
int64_t LastLevelCacheBytes();

// Bytes that this process can allocate before the system or a memory cgroup (its own or a parent)
// runs out. Includes reclaimable page cache. kUnavailable: unknown. `root`: the folder with proc
// and sys.
Result<int64_t> FreeMemoryBytes(const std::string& root = "");

// target "cpu:x86-64-v3+1f0c93ab" (elsewhere "cpu:aarch64", the machine's name); name, isa (exact,
// because -march=native depends on it), cores, logical_cpus, cache sizes.
DeviceArch DescribeCpu();

}  // namespace cudaforge
