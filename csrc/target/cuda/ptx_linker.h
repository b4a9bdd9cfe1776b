// PtxLinker: PTX text to a cubin for a named architecture, by nvJitLink. Needs no GPU and no
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
  // kUnavailable when nvJitLink is missing.
  static Result<PtxLinker> Create(const std::vector<std::string>& search_paths = {});

  // "sm_90a" and the like. Never throws; a failure is a log, with a fault where it is this
  // machine's: an architecture that this nvJitLink does not know. PTX of a newer version than it
  // reads is the text's failure, and the log names the version that it reads. resources as of
  // NvrtcCompiler::Compile. Cannot be stopped: a text that takes too long is ended with its
  // process.
  CompileResult Link(const std::string& ptx, const std::string& arch) const;

  // {13, 0}; {12, 0} where the library does not tell.
  std::pair<int, int> version() const { return version_; }
  const std::string& path() const { return api_.path; }

 private:
  PtxLinker(NvJitLinkApi api, std::pair<int, int> version)
      : api_(std::move(api)), version_(version) {}

  NvJitLinkApi api_;
  std::pair<int, int> version_;
};

// The checks that Link makes first: kInvalidArgument unless the text is at most
// KernelSource::kMaxBytes long, ASCII without control characters but white space, and without lines
// that begin with '#'. nvJitLink reads no further than a zero byte, and takes names of files from
// such lines.
Status CheckPtxSource(const std::string& ptx);

}  // namespace cudaforge
