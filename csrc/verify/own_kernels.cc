#include "verify/own_kernels.h"

#include <set>
#include <utility>

#include "target/cuda/nvrtc_compiler.h"
#include "target/cuda/sm_arch.h"

namespace cudaforge {
namespace {

constexpr std::string_view kInclude = "#include \"verify/";
constexpr int kCompileTimeoutMs = 120'000;

const EmbeddedText* TextOf(std::string_view path) {
  for (const EmbeddedText& text : OwnKernelTexts()) {
    if (text.path == path) return &text;
  }
  return nullptr;
}

// Appends `text` to `source`, its includes of the folder's texts in their places.
Status AppendText(std::string_view text, std::set<std::string_view>& seen, std::string& source) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1);
    const std::string_view line = text.substr(0, end + 1);
    text.remove_prefix(end + 1);
    if (line.starts_with("#pragma once")) continue;
    if (!line.starts_with(kInclude)) {
      source += line;
      continue;
    }
    std::string_view path = line.substr(kInclude.size());
    path = path.substr(0, path.find('"'));
    const EmbeddedText* const included = TextOf(path);
    if (included == nullptr) {
      return Status::Internal("csrc/verify/device has no text " + std::string(path));
    }
    if (!seen.insert(included->path).second) continue;
    CF_RETURN_IF_ERROR(AppendText(included->text, seen, source));
  }
  return Status::Ok();
}

// The program for `arch`, compiled once per process.
Result<std::string> CubinFor(const std::string& arch,
                             const std::vector<std::string>& search_paths) {
  static std::mutex mutex;
  static std::map<std::string, std::string> cubins;
  const std::lock_guard lock(mutex);
  if (const auto found = cubins.find(arch); found != cubins.end()) return found->second;
  CF_ASSIGN_OR_RETURN(const NvrtcCompiler compiler, NvrtcCompiler::Create(search_paths));
  CF_ASSIGN_OR_RETURN(const std::string source, OwnKernelSource());
  CompileResult compiled = compiler.Compile(source, arch, kCompileTimeoutMs);
  if (!compiled.fault.ok()) return Status::Unavailable(compiled.fault.message());
  if (!compiled.ok) return Status::Internal("the verifier's own kernels: " + compiled.log);
  return cubins.emplace(arch, std::move(compiled.binary)).first->second;
}

}  // namespace

Result<std::string> OwnKernelSource() {
  std::set<std::string_view> seen;
  std::string source;
  for (const EmbeddedText& text : OwnKernelTexts()) {
    if (text.path.ends_with(".cu")) CF_RETURN_IF_ERROR(AppendText(text.text, seen, source));
  }
  return source;
}

Result<std::unique_ptr<OwnKernels>> OwnKernels::Create(
    int device_index, const std::vector<std::string>& search_paths) {
  CF_ASSIGN_OR_RETURN(CudaContextPtr context, CudaContext::Retain(device_index));
  CF_ASSIGN_OR_RETURN(const int major, context->Attribute(cu::kCapabilityMajor));
  CF_ASSIGN_OR_RETURN(const int minor, context->Attribute(cu::kCapabilityMinor));
  CF_ASSIGN_OR_RETURN(const int multiprocessors, context->Attribute(cu::kMultiprocessors));
  CF_ASSIGN_OR_RETURN(const std::string cubin, CubinFor(ArchOf(major, minor), search_paths));
  CF_ASSIGN_OR_RETURN(CudaModule module, CudaModule::Load(context, cubin));
  return std::unique_ptr<OwnKernels>(
      new OwnKernels(std::move(context), std::move(module), multiprocessors));
}

Status OwnKernels::Launch(std::string_view kernel, unsigned grid_x, unsigned block_x,
                          std::span<void* const> params) {
  CF_RETURN_IF_ERROR(context_->MakeCurrent());
  cu::Function function = nullptr;
  {
    const std::lock_guard lock(mutex_);
    auto found = kernels_.find(kernel);
    if (found == kernels_.end()) {
      CF_ASSIGN_OR_RETURN(cu::Function loaded, module_.Kernel(std::string(kernel)));
      found = kernels_.emplace(kernel, loaded).first;
    }
    function = found->second;
  }
  cu::LaunchConfig config;
  config.grid[0] = grid_x;
  config.block[0] = block_x;
  return context_->Check(
      context_->api().LaunchKernelEx(&config, function, const_cast<void**>(params.data()), nullptr),
      std::string(kernel).c_str());
}

Status OwnKernels::Synchronize() {
  CF_RETURN_IF_ERROR(context_->MakeCurrent());
  return context_->Check(context_->api().StreamSynchronize(nullptr), "the verifier's own kernels");
}

}  // namespace cudaforge
