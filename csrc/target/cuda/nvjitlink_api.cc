#include "target/cuda/nvjitlink_api.h"

#include "target/cuda/search_paths.h"

namespace cudaforge {
namespace {

// The names of a library's functions: "nvJitLinkCreate", or with a toolkit version, as in
// "__nvJitLinkCreate_12_0". The functions are the same.
struct Spelling {
  std::string prefix;
  std::string suffix;
  std::string Of(const char* function) const {
    std::string name = prefix;
    name += function;
    name += suffix;
    return name;
  }
};

Spelling FindSpelling(const DynamicLibrary& library) {
  Spelling plain{"nvJitLink", ""};
  if (library.Symbol(plain.Of("Create").c_str()) != nullptr) return plain;
  for (int major = 13; major >= 12; --major) {
    for (int minor = 0; minor <= 9; ++minor) {
      Spelling versioned{"__nvJitLink", "_" + std::to_string(major) + "_" + std::to_string(minor)};
      if (library.Symbol(versioned.Of("Create").c_str()) != nullptr) return versioned;
    }
  }
  return plain;
}

}  // namespace

Result<NvJitLinkApi> NvJitLinkApi::Open(const std::vector<std::string>& search_paths) {
  CF_ASSIGN_OR_RETURN(SymbolLoader load, OpenCudaLibrary(search_paths, NvJitLinkSonames(),
                                                         "nvJitLink", "nvidia-nvjitlink"));
  const Spelling spelling = FindSpelling(load.library);
  NvJitLinkApi api;
  api.path = load.library.path();
  const auto required = [&](auto& pointer, const char* function) {
    load.Required(pointer, spelling.Of(function).c_str());
  };
  required(api.Create, "Create");
  required(api.Destroy, "Destroy");
  required(api.AddData, "AddData");
  required(api.Complete, "Complete");
  required(api.GetLinkedCubinSize, "GetLinkedCubinSize");
  required(api.GetLinkedCubin, "GetLinkedCubin");
  required(api.GetErrorLogSize, "GetErrorLogSize");
  required(api.GetErrorLog, "GetErrorLog");
  required(api.GetInfoLogSize, "GetInfoLogSize");
  required(api.GetInfoLog, "GetInfoLog");
  CF_RETURN_IF_ERROR(CheckComplete(load, "nvJitLink 12.0"));
  load.Optional(api.Version, "nvJitLinkVersion");
  return api;
}

}  // namespace cudaforge
