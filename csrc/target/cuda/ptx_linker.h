// PtxLinker: links PTX to a cubin for a given architecture, by nvJitLink. Needs no GPU and no
// driver.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "target/cuda/nvjitlink_api.h"
#include "target/target.h"

namespace cudaforge {

class PtxLinker {
 public:
  // kUnavailable: nvJitLink is missing.
  static Result<PtxLinker> Create(const std::vector<std::string>& search_paths = {});

  // `arch`: "sm_90a". Never throws. A failure has a log, and a fault if this machine is the reason:
  // an architecture that this nvJitLink does not support. PTX of a newer version is the text's
  // failure; the log names the supported version. resources as in NvrtcCompiler::Compile. Has no
  // time-out: the caller must end the process.
  CompileResult Link(const std::string& ptx, const std::string& arch) const;

  // {13, 0}; {12, 0} if the library does not report it.
  std::pair<int, int> version() const { return version_; }
  const std::string& path() const { return api_.path; }

 private:
  PtxLinker(NvJitLinkApi api, std::pair<int, int> version)
      : api_(std::move(api)), version_(version) {}

  NvJitLinkApi api_;
  std::pair<int, int> version_;
};

// Link's source checks. kInvalidArgument unless the text is at most KernelSource::kMaxBytes long,
// ASCII, with no control characters except white space, and no line starts with '#'. nvJitLink
// stops at a zero byte, and reads file names from these lines.
Status CheckPtxSource(const std::string& ptx);

}  // namespace cudaforge
