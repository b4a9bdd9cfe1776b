// Facts of the host processor, read from the processor and the kernel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "signature/device_arch.h"

namespace cudaforge {

// The processors that this process may run on, by the kernel's numbers; {0} where it does not tell.
std::vector<int> AllowedCpus();

// Physical cores that this process may run on; at least 1.
int PhysicalCores();

// Bytes of the last level cache; 32 MiB when the kernel does not tell.
int64_t LastLevelCacheBytes();

// Bytes that this process can still allocate without the system or a memory cgroup (its own or one
// above it) running out; page cache that can be dropped counts. kUnavailable where the kernel does
// not tell. `root`: the folder that holds proc and sys.
Result<int64_t> FreeMemoryBytes(const std::string& root = "");

// target "cpu:x86-64-v3+1f0c93ab" (or "cpu:aarch64": the machine's name elsewhere); name, isa
// (exact, because -march=native depends on it), cores, logical_cpus, cache sizes.
DeviceArch DescribeCpu();

}  // namespace cudaforge
