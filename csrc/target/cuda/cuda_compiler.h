// Compiles every language of cuda candidates to a cubin. Needs no GPU and no driver.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "target/cuda/nvrtc_compiler.h"
#include "target/cuda/ptx_linker.h"
#include "target/target.h"

namespace cudaforge {

// Not thread-safe.
class CudaCompiler : public Compiler {
 public:
  // `arch`: "sm_90a". Compilers are opened by the first call that needs them.
  CudaCompiler(std::string arch, std::vector<std::string> search_paths)
      : arch_(std::move(arch)), search_paths_(std::move(search_paths)) {}

  CompileResult Compile(const KernelSource& source, int timeout_ms) override;

 private:
  const std::string arch_;
  const std::vector<std::string> search_paths_;
  std::optional<Result<NvrtcCompiler>> compiler_;  // opened by the first Compile
  std::optional<Result<PtxLinker>> linker_;        // opened by the first Compile of PTX
};

}  // namespace cudaforge
