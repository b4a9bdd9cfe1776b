// Reads output of NVRTC and nvJitLink by pairs of their functions: Size(handle, &bytes), then
// Get(handle, text). Both return 0 on success.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include "target/cuda/ptxas_log.h"
#include "target/elf_check.h"
#include "target/target.h"

namespace cudaforge {

// Without the final NUL; "" if there is none, or it is over 16 MiB.
template <typename Handle, typename Size, typename Get>
std::string CompilerLog(Handle handle, Size size, Get get) {
  size_t bytes = 0;
  if (size(handle, &bytes) != 0 || bytes == 0 || bytes > (16u << 20)) return "";
  std::string log(bytes + 1, '\0');  // nvJitLink's size excludes the final NUL
  if (get(handle, log.data()) != 0) return "";
  log.resize(std::min(log.find('\0'), log.size()));
  return log;
}

// Returns the cubin, with the resources that `log` lists. Fails if there is none, or it is over 64
// MiB. `compiler` and `arch` are for the error message.
template <typename Handle, typename Size, typename Get>
CompileResult CompiledCubin(const char* compiler, const std::string& arch, const std::string& log,
                            Handle handle, Size size, Get get) {
  const std::string none = std::string(compiler) + " gave no cubin for " + arch;
  size_t bytes = 0;
  if (size(handle, &bytes) != 0 || bytes == 0 || bytes > (64u << 20))
    return CompileResult::Failure(none + "\n" + log);
  CompileResult result = CompileResult::Failure(WithoutPtxasNotes(log));
  result.binary.resize(bytes);
  if (get(handle, result.binary.data()) != 0) return CompileResult::Failure(none);
  if (const Status clean = CheckCubin(result.binary); !clean.ok()) {
    return CompileResult::Failure("refused: " + clean.message());
  }
  result.ok = true;
  result.resources = ParsePtxasLog(log);
  return result;
}

}  // namespace cudaforge
