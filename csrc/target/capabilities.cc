#include "target/capabilities.h"

#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <utility>

#include "base/dynamic_library.h"
#include "base/file.h"
#include "base/memory_file.h"
#include "base/subprocess.h"
#include "target/cpu/cpu_compiler.h"
#include "target/cuda/cupti_api.h"
#include "target/cuda/driver_api.h"
#include "target/cuda/nvrtc_compiler.h"
#include "target/cuda/ptx_linker.h"
#include "target/cuda/search_paths.h"
#include "target/cuda/sm_arch.h"

namespace cudaforge {
namespace {

constexpr int kVersionTimeoutMs = 10'000;

Capability Ok(std::string name, std::string detail) {
  return {std::move(name), CapabilityState::kOk, std::move(detail), ""};
}

Capability Missing(std::string name, std::string detail, std::string advice) {
  return {std::move(name), CapabilityState::kMissing, std::move(detail), std::move(advice)};
}

Capability Broken(std::string name, std::string detail, std::string advice) {
  return {std::move(name), CapabilityState::kBroken, std::move(detail), std::move(advice)};
}

// A CUDA library that cannot be used because of `fault`.
Capability UnusableLibrary(std::string name, const Status& fault,
                           const std::vector<std::string>& cuda_search_paths,
                           const std::vector<std::string>& sonames, std::string advice) {
  const Status opened =
      DynamicLibrary::Open(CudaLibraryCandidates(cuda_search_paths, sonames)).status();
  const std::string& why = opened.ok() ? fault.message() : opened.message();
  const bool missing = opened.code() == StatusCode::kNotFound;
  return {std::move(name), missing ? CapabilityState::kMissing : CapabilityState::kBroken, why,
          std::move(advice)};
}

std::string Version(int encoded) {
  return std::to_string(encoded / 1000) + "." + std::to_string(encoded % 1000 / 10);
}

// "sm_90a" of device 0; empty if there is none.
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

const char* CapabilityStateName(CapabilityState state) {
  switch (state) {
    case CapabilityState::kOk:
      return "ok";
    case CapabilityState::kMissing:
      return "missing";
    case CapabilityState::kBroken:
      return "broken";
  }
  return "broken";
}

Capability HostCompilerCapability(const std::string& wanted_cxx) {
  const char* const name = "host compiler";
  const char* const advice =
      "install g++ (apt-get install g++), or set CUDAFORGE_CXX to a C++20 compiler";
  const Result<std::string> cxx = FindHostCompiler(wanted_cxx);
  if (!cxx.ok()) {
    if (wanted_cxx.empty()) return Missing(name, "no g++, c++ or clang++ on PATH", advice);
    if (wanted_cxx.find('/') != std::string::npos && PathExists(wanted_cxx))
      return Broken(name, wanted_cxx + " cannot be run", advice);
    return Missing(name, wanted_cxx + " does not exist", advice);
  }
  const Result<ProcessResult> run =
      RunProcess({*cxx, "--version"}, {.timeout_ms = kVersionTimeoutMs});
  if (!run.ok()) return Broken(name, run.status().message(), advice);
  if (run->timed_out || run->term_signal != 0 || run->exit_code != 0)
    return Broken(name, *cxx + " --version fails", advice);
  return Ok(name, *cxx + ": " + run->output.substr(0, run->output.find('\n')));
}

Capability CpuCountersCapability(const OpenPerfCounter& open) {
  const char* const name = "cpu counters";
  const Result<std::vector<std::string>> events = PerfEvents(open);
  if (events.ok()) {
    std::string list;
    for (const std::string& event : *events) list += (list.empty() ? "" : ", ") + event;
    return Ok(name, list);
  }
  if (events.status().code() == StatusCode::kUnsupported) {
    return Missing(name, "this processor has none",
                   "let the virtual machine's host pass them through; only agents' prompts about "
                   "CPU kernels use them");
  }
  return Broken(name, "this process may not count",
                "set kernel.perf_event_paranoid to 2 or less, and let the container's seccomp "
                "filter pass perf_event_open; only agents' prompts about CPU kernels use them");
}

Capability IsolationCapability() {
  std::string missing;
  const auto need = [&missing](bool there, const char* what) {
    if (!there) missing += (missing.empty() ? "" : ", ") + std::string(what);
  };
  const uint32_t action = SECCOMP_RET_KILL_PROCESS;
  need(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0, "seccomp filters");
  need(MakeMemFile(int64_t{1}).ok(), "memory files that can be sealed");
#if defined(__x86_64__)
  int state = 0;
  need(prctl(PR_GET_TSC, &state) == 0, "a switch for rdtsc");
#endif
  const char* const name = "isolation";
  if (missing.empty()) return Ok(name, "CPU kernels are tested without system calls or clock");
  return Missing(name, "the Linux kernel does not allow: " + missing,
                 "use Linux 4.14 or newer, and a container that allows prctl, seccomp and "
                 "memfd_create; until then, CPU kernels are less isolated while they are tested");
}

Capability DriverCapability() {
  const Result<const cu::DriverApi*>& driver = cu::DriverApi::Get();
  if (!driver.ok()) {
    const cu::DriverFault& fault = cu::DriverApi::Fault();
    return {"driver", fault.missing ? CapabilityState::kMissing : CapabilityState::kBroken,
            fault.what, fault.advice + "; kernels for the CPU work without it"};
  }
  int version = 0;
  if ((*driver)->DriverGetVersion(&version) != 0)
    return Broken("driver", "its version is unknown", "install the driver again");
  return Ok("driver", "up to CUDA " + Version(version) + " (" + (*driver)->path + ")");
}

Capability GpuCapability() {
  if (!cu::DriverApi::Get().ok()) return Missing("gpu", "it needs the driver", "see driver");
  std::string name;
  const std::string arch = DeviceZeroArch(&name);
  if (arch.empty()) return Broken("gpu", "device 0 cannot be read", "check nvidia-smi");
  return Ok("gpu", name + " (" + arch + ")");
}

Capability NvrtcCapability(const std::vector<std::string>& cuda_search_paths) {
  const Result<NvrtcCompiler> nvrtc = NvrtcCompiler::Create(cuda_search_paths);
  if (!nvrtc.ok()) {
    return UnusableLibrary(
        "nvrtc", nvrtc.status(), cuda_search_paths, NvrtcSonames(),
        "pip install nvidia-cuda-nvrtc, or set CUDAFORGE_CUDA_PATH to a CUDA toolkit");
  }
  const auto [major, minor] = nvrtc->version();
  std::string detail =
      std::to_string(major) + "." + std::to_string(minor) + " (" + nvrtc->path() + ")";
  if (const std::string arch = DeviceZeroArch(); !arch.empty() && !nvrtc->CheckArch(arch).ok()) {
    return Broken("nvrtc", detail + ": it does not support " + arch,
                  "update nvidia-cuda-nvrtc or the CUDA toolkit");
  }
  if (nvrtc->include_dirs().empty()) {
    return Broken("nvrtc", detail + "; no CUDA headers (cuda_fp16.h)",
                  "pip install nvidia-cuda-runtime, or set CUDAFORGE_CUDA_PATH to a CUDA toolkit");
  }
  return Ok("nvrtc", detail + ", headers in " + nvrtc->include_dirs().front());
}

Capability NvJitLinkCapability(const std::vector<std::string>& cuda_search_paths) {
  const Result<PtxLinker> linker = PtxLinker::Create(cuda_search_paths);
  if (!linker.ok()) {
    return UnusableLibrary(
        "nvjitlink", linker.status(), cuda_search_paths, NvJitLinkSonames(),
        "pip install nvidia-nvjitlink, or set CUDAFORGE_CUDA_PATH to a CUDA toolkit; only PTX "
        "kernels (of Triton) need it");
  }
  const auto [major, minor] = linker->version();
  return Ok("nvjitlink",
            std::to_string(major) + "." + std::to_string(minor) + " (" + linker->path() + ")");
}

Capability CuptiCapability(const std::vector<std::string>& cuda_search_paths) {
  const Result<cupti::CuptiApi> api = cupti::CuptiApi::Open(cuda_search_paths);
  if (!api.ok()) {
    return UnusableLibrary("cupti", api.status(), cuda_search_paths, CuptiSonames(),
                           "pip install nvidia-cuda-cupti; only hardware metrics need it");
  }
  return Ok("cupti", api->path);
}

std::vector<Capability> Capabilities(const std::string& wanted_cxx,
                                     const std::vector<std::string>& cuda_search_paths) {
  return {HostCompilerCapability(wanted_cxx),
          CpuCountersCapability(),
          IsolationCapability(),
          DriverCapability(),
          GpuCapability(),
          NvrtcCapability(cuda_search_paths),
          NvJitLinkCapability(cuda_search_paths),
          CuptiCapability(cuda_search_paths)};
}

}  // namespace cudaforge
