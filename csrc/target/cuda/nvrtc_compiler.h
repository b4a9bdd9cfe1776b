// NvrtcCompiler: compiles CUDA C++ to a cubin for a given architecture. Needs no GPU and no driver.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "target/cuda/nvrtc_api.h"
#include "target/target.h"

namespace cudaforge {

class NvrtcCompiler {
 public:
  // kUnavailable: NVRTC is missing. Headers come from the same search paths. Without any, kernels
  // that include CUDA headers fail to compile, with a log.
  static Result<NvrtcCompiler> Create(const std::vector<std::string>& search_paths = {});

  // `arch`: "sm_90a". kUnsupported: this NVRTC does not support it. kInvalidArgument: not an
  // architecture.
  Status CheckArch(const std::string& arch) const;

  // Scans and compiles. Never throws. A failure has a log, and a fault if this machine is the
  // reason. resources, per kernel: registers, spill_bytes (stores and loads), stack_bytes,
  // shared_bytes (static). NVRTC checks the time-out itself (12.8 and newer). Threads do not help:
  // NVRTC takes a lock.
  CompileResult Compile(const std::string& code, const std::string& arch,
                        int timeout_ms = 60'000) const;

  // {13, 0}.
  std::pair<int, int> version() const { return version_; }
  const std::string& path() const { return api_.path; }
  const std::vector<std::string>& include_dirs() const { return include_dirs_; }

 private:
  NvrtcCompiler(NvrtcApi api, std::pair<int, int> version, std::vector<int> archs,
                std::vector<std::string> include_dirs)
      : api_(std::move(api)),
        version_(version),
        archs_(std::move(archs)),
        include_dirs_(std::move(include_dirs)) {}

  NvrtcApi api_;
  std::pair<int, int> version_;
  std::vector<int> archs_;  // 75, 80, ... from NVRTC
  std::vector<std::string> include_dirs_;
};

// Compile's source checks: kInvalidArgument says what is refused and where.
Status CheckCudaSource(const std::string& code);

}  // namespace cudaforge
