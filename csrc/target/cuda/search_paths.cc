#include "target/cuda/search_paths.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/file.h"

namespace cudaforge {

std::vector<std::string> CudaRoots(const std::vector<std::string>& given) {
  std::vector<std::string> roots;
  const auto add = [&](const std::string& root) {
    if (root.empty() || !PathExists(root)) return;
    if (std::find(roots.begin(), roots.end(), root) == roots.end()) roots.push_back(root);
  };
  for (const std::string& root : given) add(root);
  for (const char* variable : {"CUDAFORGE_CUDA_PATH", "CUDA_HOME", "CUDA_PATH"}) {
    const char* value = std::getenv(variable);
    std::string_view rest = value == nullptr ? "" : value;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find(':'), rest.size());
      add(std::string(rest.substr(0, end)));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
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
