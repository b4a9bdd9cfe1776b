#include "target/capabilities.h"

#include <array>
#include <utility>

#include "base/subprocess.h"
#include "target/cpu/cpu_compiler.h"
#include "target/cuda/cupti_api.h"
#include "target/cuda/driver_api.h"
#include "target/cuda/nvrtc_compiler.h"
#include "target/cuda/ptx_linker.h"
#include "target/cuda/sm_arch.h"

namespace cudaforge {
namespace {

constexpr int kVersionTimeoutMs = 10'000;

constexpr const char* kDriverAdvice =
    "install the NVIDIA driver, or start the container with its GPUs; the cpu target works without";

Capability Missing(std::string name, std::string detail, std::string advice) {
  return {std::move(name), false, std::move(detail), std::move(advice)};
}

std::string Version(int encoded) {
  return std::to_string(encoded / 1000) + "." + std::to_string(encoded % 1000 / 10);
}

// "sm_90a" of device 0; empty when there is none.
std::string DeviceZeroArch(std::string* name = nullptr) {
  const Result<const cu::DriverApi*>& driver = cu::DriverApi::Get();
  if (!driver.ok()) return "";
  const cu::DriverApi& api = **driver;
  cu::Device device = 0;
  int major = 0;
  int minor = 0;
  std::array<char, 256> text = {};
  if (api.DeviceGet(&device, 0) != 0 ||
      api.DeviceGetAttribute(&major, cu::kCapabilityMajor, device) != 0 ||
      api.DeviceGetAttribute(&minor, cu::kCapabilityMinor, device) != 0 ||
      api.DeviceGetName(text.data(), text.size() - 1, device) != 0) {
    return "";
  }
  if (name != nullptr) *name = text.data();
  return ArchOf(major, minor);
}

}  // namespace

Capability HostCompilerCapability(const std::string& wanted_cxx) {
  const char* const advice =
      "install g++ (apt-get install g++), or set CUDAFORGE_CXX to a C++20 compiler";
  const Result<std::string> cxx = FindHostCompiler(wanted_cxx);
  if (!cxx.ok()) return Missing("host compiler", cxx.status().message(), advice);
  const Result<ProcessResult> run =
      RunProcess({*cxx, "--version"}, {.timeout_ms = kVersionTimeoutMs});
  if (!run.ok()) return Missing("host compiler", run.status().message(), advice);
  if (run->timed_out || run->term_signal != 0 || run->exit_code != 0) {
    return Missing("host compiler", *cxx + " --version fails", advice);
  }
  return {"host compiler", true, *cxx + ": " + run->output.substr(0, run->output.find('\n')), ""};
}

Capability DriverCapability() {
  const Result<const cu::DriverApi*>& driver = cu::DriverApi::Get();
  if (!driver.ok()) return Missing("driver", driver.status().message(), kDriverAdvice);
  int version = 0;
  if ((*driver)->DriverGetVersion(&version) != 0)
    return Missing("driver", "it tells no version", kDriverAdvice);
  return {"driver", true, "up to CUDA " + Version(version) + " (" + (*driver)->path + ")", ""};
}

Capability GpuCapability() {
  const Result<const cu::DriverApi*>& driver = cu::DriverApi::Get();
  if (!driver.ok()) return Missing("gpu", driver.status().message(), kDriverAdvice);
  std::string name;
  const std::string arch = DeviceZeroArch(&name);
  if (arch.empty()) return Missing("gpu", "device 0 cannot be read", "check nvidia-smi");
  return {"gpu", true, name + " (" + arch + ")", ""};
}

Capability NvrtcCapability(const std::vector<std::string>& cuda_search_paths) {
  const Result<NvrtcCompiler> nvrtc = NvrtcCompiler::Create(cuda_search_paths);
  if (!nvrtc.ok()) {
    return Missing("nvrtc", nvrtc.status().message(),
                   "pip install nvidia-cuda-nvrtc, or set CUDAFORGE_CUDA_PATH to a CUDA toolkit");
  }
  const auto [major, minor] = nvrtc->version();
  std::string detail =
      std::to_string(major) + "." + std::to_string(minor) + " (" + nvrtc->path() + ")";
  if (const std::string arch = DeviceZeroArch(); !arch.empty()) {
    if (const Status status = nvrtc->CheckArch(arch); !status.ok()) {
      return Missing("nvrtc", detail + ": " + status.message(),
                     "update nvidia-cuda-nvrtc or the CUDA toolkit");
    }
  }
  if (nvrtc->include_dirs().empty()) {
    return Missing("nvrtc", detail + "; no CUDA headers (cuda_fp16.h)",
                   "pip install nvidia-cuda-runtime, or set CUDAFORGE_CUDA_PATH to a CUDA toolkit");
  }
  return {"nvrtc", true, detail + ", headers in " + nvrtc->include_dirs().front(), ""};
}

Capability NvJitLinkCapability(const std::vector<std::string>& cuda_search_paths) {
  const Result<PtxLinker> linker = PtxLinker::Create(cuda_search_paths);
  if (!linker.ok()) {
    return Missing("nvjitlink", linker.status().message(),
                   "pip install nvidia-nvjitlink, or set CUDAFORGE_CUDA_PATH to a CUDA toolkit; "
                   "only PTX kernels (of Triton) need it");
  }
  const auto [major, minor] = linker->version();
  return {"nvjitlink", true,
          std::to_string(major) + "." + std::to_string(minor) + " (" + linker->path() + ")", ""};
}

Capability CuptiCapability(const std::vector<std::string>& cuda_search_paths) {
  const Result<cupti::CuptiApi> api = cupti::CuptiApi::Open(cuda_search_paths);
  if (!api.ok()) {
    return Missing("cupti", api.status().message(),
                   "pip install nvidia-cuda-cupti; only hardware metrics need it");
  }
  return {"cupti", true, api->path, ""};
}

std::vector<Capability> Capabilities(const std::string& wanted_cxx,
                                     const std::vector<std::string>& cuda_search_paths) {
  return {HostCompilerCapability(wanted_cxx),
          DriverCapability(),
          GpuCapability(),
          NvrtcCapability(cuda_search_paths),
          NvJitLinkCapability(cuda_search_paths),
          CuptiCapability(cuda_search_paths)};
}

}  // namespace cudaforge
