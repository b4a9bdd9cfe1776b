// The capabilities of this machine, for `cudaforge doctor`. Never fails; needs no GPU.
#pragma once

#include <string>
#include <vector>

#include "target/cpu/perf_counters.h"

namespace cudaforge {

enum class CapabilityState {
  kOk,
  kMissing,  // not installed
  kBroken,   // installed, but not usable
};
// "ok", "missing", "broken".
const char* CapabilityStateName(CapabilityState state);

struct Capability {
  // "host compiler", "cpu counters", "isolation", "driver", "gpu", "nvrtc", "nvjitlink", "cupti"
  std::string name;
  CapabilityState state = CapabilityState::kMissing;
  std::string detail;  // version and path, or what is wrong, without advice
  std::string advice;  // what to do; empty if ok
  bool ok() const { return state == CapabilityState::kOk; }
};

// First line of `COMPILER --version`. Starts a process. `wanted_cxx` as in CpuTargetOptions.
Capability HostCompilerCapability(const std::string& wanted_cxx = "");
// The hardware events that this process may count. Opens each once, counts nothing.
Capability CpuCountersCapability(const OpenPerfCounter& open = OpenHardwareCounter);
// The isolation of CPU kernels under test: seccomp filters, sealed memory files and, on x86, a
// switch for rdtsc. Tries each without side effects.
Capability IsolationCapability();
Capability DriverCapability();
// Name and architecture of device 0. Needs no context.
Capability GpuCapability();
// Version, path and header folders. Not ok if it does not support device 0's architecture.
Capability NvrtcCapability(const std::vector<std::string>& cuda_search_paths = {});
// Version and path of the PTX linker, which Triton kernels need.
Capability NvJitLinkCapability(const std::vector<std::string>& cuda_search_paths = {});
Capability CuptiCapability(const std::vector<std::string>& cuda_search_paths = {});

// All of the above, in that order.
std::vector<Capability> Capabilities(const std::string& wanted_cxx = "",
                                     const std::vector<std::string>& cuda_search_paths = {});

}  // namespace cudaforge
