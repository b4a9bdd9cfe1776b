// What this machine offers, for `cudaforge doctor`. None of these fails or needs a GPU.
#pragma once

#include <string>
#include <vector>

namespace cudaforge {

struct Capability {
  std::string name;  // "host compiler", "driver", "gpu", "nvrtc", "nvjitlink", "cupti"
  bool ok = false;
  std::string detail;  // version and path, or what is wrong
  std::string advice;  // what to do; empty when ok
};

// First line of `COMPILER --version`. Starts a process; `wanted_cxx` as in CpuTargetOptions.
Capability HostCompilerCapability(const std::string& wanted_cxx = "");
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
