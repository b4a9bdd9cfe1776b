// NvrtcCompiler: CUDA C++ text to a cubin for a named architecture. Needs no GPU and no driver.
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
  // kUnavailable when NVRTC is missing. Headers come from the same search paths; without any,
  // kernels that include CUDA headers fail to compile and the log says so.
  static Result<NvrtcCompiler> Create(const std::vector<std::string>& search_paths = {});

  // "sm_90a" and the like. kUnsupported when this NVRTC does not know the architecture,
  // kInvalidArgument when the text is no architecture.
  Status CheckArch(const std::string& arch) const;

  // Scans and compiles. Never throws; a failure is a log, with a fault where it is this machine's.
  // resources, per kernel: registers, spill_bytes (stores and loads), stack_bytes, shared_bytes
  // (static). NVRTC polls the time-out itself where it can (12.8 and newer). Not faster in several
  // threads: NVRTC takes a lock.
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
  std::vector<int> archs_;  // 75, 80, ... as NVRTC lists them
  std::vector<std::string> include_dirs_;
};

// The checks that Compile makes first: kInvalidArgument says what is refused and where.
Status CheckCudaSource(const std::string& code);

}  // namespace cudaforge
