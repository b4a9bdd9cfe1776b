#include "verify/own_kernels.h"

#include <algorithm>
#include <future>
#include <set>
#include <utility>

#include "base/text.h"
#include "target/cuda/nvrtc_compiler.h"
#include "target/cuda/sm_arch.h"

namespace cudaforge {
namespace {

constexpr std::string_view kInclude = "#include \"verify/";
constexpr std::string_view kOfType = "CF_KERNEL_OF_TYPE(";
constexpr const char* kAtOnce[] = {"", "draw_float32", "screen_float32"};
constexpr int kCompileTimeoutMs = 120'000;

const EmbeddedText* TextOf(std::string_view path) {
  for (const EmbeddedText& text : OwnKernelTexts()) {
    if (text.path == path) return &text;
  }
  return nullptr;
}

// The name of the kernel of one type that a line makes; empty for other lines.
std::string_view KernelOfLine(std::string_view line) {
  if (!line.starts_with(kOfType)) return {};
  line.remove_prefix(kOfType.size());
  return line.substr(0, line.find(','));
}

std::vector<std::string_view> KernelsOfTypes(std::string_view text) {
  std::vector<std::string_view> found;
  for (const std::string_view line : Split(text, '\n')) {
    if (const auto kernel = KernelOfLine(line); !kernel.empty()) found.push_back(kernel);
  }
  return found;
}

// Appends `text` to `source` with includes expanded. Of kernels of one type, keeps only `kernel`.
Status AppendText(std::string_view text, std::string_view kernel, std::set<std::string_view>& seen,
                  std::string& source) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1);
    const std::string_view line = text.substr(0, end + 1);
    text.remove_prefix(end + 1);
    if (line.starts_with("#pragma once")) continue;
    if (const auto made = KernelOfLine(line); !made.empty() && made != kernel) continue;
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
    CF_RETURN_IF_ERROR(AppendText(included->text, kernel, seen, source));
  }
  return Status::Ok();
}

bool IsOfType(std::string_view kernel) {
  return std::ranges::count(OwnKernelsOfTypes(), kernel) > 0;
}

Result<std::string> Compile(const std::string& kernel, const std::string& arch,
                            const std::vector<std::string>& search_paths) {
  CF_ASSIGN_OR_RETURN(const NvrtcCompiler compiler, NvrtcCompiler::Create(search_paths));
  CF_ASSIGN_OR_RETURN(const std::string source, OwnKernelSource(kernel));
  CompileResult compiled = compiler.Compile(source, arch, kCompileTimeoutMs);
  if (!compiled.fault.ok()) return Status::Unavailable(compiled.fault.message());
  if (!compiled.ok) return Status::Internal("the verifier's own kernels: " + compiled.log);
  return std::move(compiled.binary);
}

// Compiles the program of a kernel of one type, or of all others (""), for `arch`: once per
// process, in its own thread. Failures are not cached.
std::shared_future<Result<std::string>> CubinOf(const std::string& kernel, const std::string& arch,
                                                const std::vector<std::string>& search_paths) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, std::string>, std::shared_future<Result<std::string>>>
      cubins;
  const std::lock_guard lock(mutex);
  auto& cubin = cubins[{kernel, arch}];
  const auto failed = [&] {
    return cubin.wait_for(std::chrono::seconds(0)) == std::future_status::ready &&
           !cubin.get().ok();
  };
  if (!cubin.valid() || failed()) {
    cubin = std::async(std::launch::async, Compile, kernel, arch, search_paths).share();
  }
  return cubin;
}

}  // namespace

Result<std::string> OwnKernelSource(std::string_view kernel) {
  const bool of_type = IsOfType(kernel);
  std::set<std::string_view> seen;
  std::string source;
  for (const EmbeddedText& text : OwnKernelTexts()) {
    if (!text.path.ends_with(".cu")) continue;
    if (of_type && std::ranges::count(KernelsOfTypes(text.text), kernel) == 0) continue;
    CF_RETURN_IF_ERROR(AppendText(text.text, kernel, seen, source));
  }
  return source;
}

std::vector<std::string> OwnKernelsOfTypes() {
  std::vector<std::string> found;
  for (const EmbeddedText& text : OwnKernelTexts()) {
    for (const std::string_view kernel : KernelsOfTypes(text.text)) found.emplace_back(kernel);
  }
  std::ranges::sort(found);
  return found;
}

Result<std::unique_ptr<OwnKernels>> OwnKernels::Create(
    int device_index, const std::vector<std::string>& search_paths) {
  CF_ASSIGN_OR_RETURN(CudaContextPtr context, CudaContext::Retain(device_index));
  CF_ASSIGN_OR_RETURN(const int major, context->Attribute(cu::kCapabilityMajor));
  CF_ASSIGN_OR_RETURN(const int minor, context->Attribute(cu::kCapabilityMinor));
  CF_ASSIGN_OR_RETURN(const int multiprocessors, context->Attribute(cu::kMultiprocessors));
  std::unique_ptr<OwnKernels> made(
      new OwnKernels(std::move(context), ArchOf(major, minor), search_paths, multiprocessors));
  for (const char* kernel : kAtOnce) CubinOf(kernel, made->arch_, search_paths);
  for (const char* kernel : kAtOnce) {
    CF_RETURN_IF_ERROR(CubinOf(kernel, made->arch_, search_paths).get().status());
  }
  return made;
}

Result<cu::Function> OwnKernels::Find(std::string_view kernel) {
  const std::lock_guard lock(mutex_);
  const auto known = kernels_.find(kernel);
  if (known != kernels_.end()) return known->second;
  const std::string program(IsOfType(kernel) ? kernel : "");
  auto module = modules_.find(program);
  if (module == modules_.end()) {
    CF_ASSIGN_OR_RETURN(const std::string cubin, CubinOf(program, arch_, search_paths_).get());
    CF_ASSIGN_OR_RETURN(CudaModule loaded, CudaModule::Load(context_, cubin));
    module = modules_.emplace(program, std::move(loaded)).first;
  }
  CF_ASSIGN_OR_RETURN(const cu::Function found, module->second.Kernel(std::string(kernel)));
  return kernels_.emplace(kernel, found).first->second;
}

Status OwnKernels::Launch(std::string_view kernel, unsigned grid_x, unsigned block_x,
                          std::span<void* const> params) {
  CF_RETURN_IF_ERROR(context_->MakeCurrent());
  CF_ASSIGN_OR_RETURN(const cu::Function function, Find(kernel));
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
