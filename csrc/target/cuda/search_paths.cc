#include "target/cuda/search_paths.h"

#include <algorithm>
#include <utility>

#include "base/config.h"
#include "base/file.h"

namespace cudaforge {

std::vector<std::string> CudaRoots(const std::vector<std::string>& given) {
  std::vector<std::string> roots;
  const auto add = [&](const std::string& root) {
    if (!PathExists(root)) return;
    if (std::find(roots.begin(), roots.end(), root) == roots.end()) roots.push_back(root);
  };
  for (const std::string& root : GlobalConfig().cuda_path) add(root);
  for (const std::string& root : given) add(root);
  for (const std::string& root : GlobalConfig().cuda_home) add(root);
  add("/usr/local/cuda");
  return roots;
}

std::vector<std::string> CudaLibraryCandidates(const std::vector<std::string>& given,
                                               const std::vector<std::string>& sonames) {
  std::vector<std::string> paths;
  for (const std::string& root : CudaRoots(given)) {
    for (const std::string& soname : sonames) {
      for (const char* folder : {"/lib64/", "/lib/", "/extras/CUPTI/lib64/"}) {
        std::string path = root;
        path += folder;
        path += soname;
        if (PathExists(path)) paths.push_back(std::move(path));
      }
    }
  }
  paths.insert(paths.end(), sonames.begin(), sonames.end());
  return paths;
}

const std::vector<std::string>& NvrtcSonames() {
  static const auto* const names =
      new std::vector<std::string>{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
  return *names;
}

const std::vector<std::string>& NvJitLinkSonames() {
  static const auto* const names =
      new std::vector<std::string>{"libnvJitLink.so.13", "libnvJitLink.so.12", "libnvJitLink.so"};
  return *names;
}

const std::vector<std::string>& CuptiSonames() {
  static const auto* const names = new std::vector<std::string>{"libcupti.so.13", "libcupti.so.12"};
  return *names;
}

const std::vector<std::string>& CublasLtSonames() {
  static const auto* const names =
      new std::vector<std::string>{"libcublasLt.so.13", "libcublasLt.so.12"};
  return *names;
}

Result<SymbolLoader> OpenCudaLibrary(const std::vector<std::string>& given,
                                     const std::vector<std::string>& sonames, const char* name,
                                     const char* package) {
  Result<DynamicLibrary> opened = DynamicLibrary::Open(CudaLibraryCandidates(given, sonames));
  if (opened.ok()) return SymbolLoader{KeepLoaded(*std::move(opened)), {}};
  return Status::Unavailable(std::string(name) + " is missing: pip install " + package +
                             " (PyTorch's CUDA wheels bring it), or set CUDAFORGE_CUDA_PATH to "
                             "the CUDA toolkit; " +
                             opened.status().message());
}

Status CheckComplete(const SymbolLoader& load, const char* oldest) {
  if (load.missing.empty()) return Status::Ok();
  return Status::Unavailable(load.library.path() + " has no " + load.missing + ": " + oldest +
                             " or newer is needed");
}

std::vector<std::string> CudaIncludeDirs(const std::vector<std::string>& given) {
  for (const std::string& root : CudaRoots(given)) {
    const std::string include = root + "/include";
    if (!PathExists(include + "/cuda_fp16.h")) continue;
    std::vector<std::string> folders = {include};
    if (PathExists(include + "/cccl")) folders.push_back(include + "/cccl");
    return folders;
  }
  return {};
}

}  // namespace cudaforge
