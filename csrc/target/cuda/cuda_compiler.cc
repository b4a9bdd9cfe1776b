#include "target/cuda/cuda_compiler.h"

namespace cudaforge {

CompileResult CudaCompiler::Compile(const KernelSource& source, int timeout_ms) {
  if (source.language == Language::kPtx) {
    if (!linker_.has_value()) linker_.emplace(PtxLinker::Create(search_paths_));
    if (!linker_->ok()) return CompileResult::Fault(linker_->status());
    return linker_->value().Link(source.code, arch_);
  }
  if (source.language != Language::kCuda) {
    return CompileResult::Failure("a cuda target compiles languages \"cuda\" and \"ptx\" only");
  }
  if (!compiler_.has_value()) compiler_.emplace(NvrtcCompiler::Create(search_paths_));
  if (!compiler_->ok()) return CompileResult::Fault(compiler_->status());
  return compiler_->value().Compile(source.code, arch_, timeout_ms);
}

}  // namespace cudaforge
