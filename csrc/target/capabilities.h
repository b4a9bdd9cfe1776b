// What this machine offers, for `cudaforge doctor`. None of these fails or needs a GPU.
#pragma once

#include <string>
#include <vector>

#include "target/cpu/perf_counters.h"

namespace cudaforge {

enum class CapabilityState {
  kOk,
  kMissing,  // it is not there
  kBroken,   // it is there, and cannot be used as it is
};
// "ok", "missing", "broken".
const char* CapabilityStateName(CapabilityState state);

struct Capability {
  // "host compiler", "cpu counters", "isolation", "driver", "gpu", "nvrtc", "nvjitlink", "cupti"
  std::string name;
  CapabilityState state = CapabilityState::kMissing;
  std::string detail;  // version and path, or what is wrong; never what to do about it
  std::string advice;  // what to do; empty when ok
  bool ok() const { return state == CapabilityState::kOk; }
};

// First line of `COMPILER --version`. Starts a process; `wanted_cxx` as in CpuTargetOptions.
Capability HostCompilerCapability(const std::string& wanted_cxx = "");
// Which hardware events this process may count. Opens each once, counts nothing.
Capability CpuCountersCapability(const OpenPerfCounter& open = OpenHardwareCounter);
// What kernels for the CPU are kept apart with while they are tried: seccomp filters, sealed memory
// files and, on x86, a switch for rdtsc. Tries each in a way that changes nothing here.
Capability IsolationCapability();
Capability DriverCapability();
// Name and architecture of device 0. Takes no context.
Capability GpuCapability();
// Version, path and header folders; not ok when it does not know device 0's architecture.
Capability NvrtcCapability(const std::vector<std::string>& cuda_search_paths = {});
// Version and path of what links PTX, Triton's kernels among it.
Capability NvJitLinkCapability(const std::vector<std::string>& cuda_search_paths = {});
Capability CuptiCapability(const std::vector<std::string>& cuda_search_paths = {});

// All of the above, in that order.
std::vector<Capability> Capabilities(const std::string& wanted_cxx = "",
                                     const std::vector<std::string>& cuda_search_paths = {});

}  // namespace cudaforge
