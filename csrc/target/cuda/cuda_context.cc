#include "target/cuda/cuda_context.h"

#include <array>

#include "target/cuda/sm_arch.h"
#include "target/elf_check.h"

namespace cudaforge {

Result<std::shared_ptr<const CudaContext>> CudaContext::Retain(int device_index) {
  CF_ASSIGN_OR_RETURN(const cu::DriverApi* api, cu::DriverApi::Get());
  int count = 0;
  CF_RETURN_IF_ERROR(
      api->Check(api->DeviceGetCount(&count), "cuDeviceGetCount", StatusCode::kUnavailable));
  if (device_index < 0 || device_index >= count) {
    return Status::InvalidArgument("no CUDA device " + std::to_string(device_index) +
                                   ": the driver sees " + std::to_string(count));
  }
  cu::Device device = 0;
  CF_RETURN_IF_ERROR(
      api->Check(api->DeviceGet(&device, device_index), "cuDeviceGet", StatusCode::kUnavailable));
  cu::Context context = nullptr;
  CF_RETURN_IF_ERROR(api->Check(api->PrimaryContextRetain(&context, device),
                                "cuDevicePrimaryCtxRetain", StatusCode::kUnavailable));
  CudaContextPtr owner(new CudaContext(*api, device, context));
  CF_RETURN_IF_ERROR(owner->MakeCurrent());
  return owner;
}

CudaContext::~CudaContext() { api_.PrimaryContextRelease(device_); }

Status CudaContext::MakeCurrent() const {
  return Check(api_.ContextSetCurrent(context_), "cuCtxSetCurrent");
}

Result<int> CudaContext::Attribute(cu::Attribute attribute) const {
  int value = 0;
  CF_RETURN_IF_ERROR(
      Check(api_.DeviceGetAttribute(&value, attribute, device_), "cuDeviceGetAttribute"));
  return value;
}

Status CudaContext::Check(cu::Result result, const char* what) const {
  if (result == 0) return Status::Ok();
  if (cu::DriverApi::IsSticky(result)) poisoned_.store(true, std::memory_order_relaxed);
  return api_.Check(result, what);
}

Result<DeviceArch> CudaContext::Describe() const {
  static constexpr struct {
    DeviceArch::Number DeviceArch::*fact;
    cu::Attribute attribute;
  } kFacts[] = {
      {&DeviceArch::multiprocessors, cu::kMultiprocessors},
      {&DeviceArch::clock_khz, cu::kClockKhz},
      {&DeviceArch::memory_clock_khz, cu::kMemoryClockKhz},
      {&DeviceArch::memory_bus_bits, cu::kMemoryBusBits},
      {&DeviceArch::l2_bytes, cu::kL2Bytes},
      {&DeviceArch::warp_size, cu::kWarpSize},
      {&DeviceArch::max_threads_per_block, cu::kMaxThreadsPerBlock},
      {&DeviceArch::max_threads_per_multiprocessor, cu::kThreadsPerMultiprocessor},
      {&DeviceArch::max_blocks_per_multiprocessor, cu::kBlocksPerMultiprocessor},
      {&DeviceArch::registers_per_block, cu::kRegistersPerBlock},
      {&DeviceArch::registers_per_multiprocessor, cu::kRegistersPerMultiprocessor},
      {&DeviceArch::shared_bytes_per_block, cu::kSharedPerBlock},
      {&DeviceArch::shared_bytes_per_block_optin, cu::kSharedPerBlockOptin},
      {&DeviceArch::shared_bytes_per_multiprocessor, cu::kSharedPerMultiprocessor},
      {&DeviceArch::cluster_launch, cu::kClusterLaunch},
  };
  DeviceArch arch;
  CF_ASSIGN_OR_RETURN(const int major, Attribute(cu::kCapabilityMajor));
  CF_ASSIGN_OR_RETURN(const int minor, Attribute(cu::kCapabilityMinor));
  arch.target = "cuda:" + ArchOf(major, minor);
  for (const auto& [fact, attribute] : kFacts) {
    CF_ASSIGN_OR_RETURN(arch.*fact, Attribute(attribute));
  }
  std::array<char, 256> name = {};
  CF_RETURN_IF_ERROR(
      Check(api_.DeviceGetName(name.data(), name.size() - 1, device_), "cuDeviceGetName"));
  arch.name = name.data();
  size_t bytes = 0;
  CF_RETURN_IF_ERROR(Check(api_.DeviceTotalMem(&bytes, device_), "cuDeviceTotalMem"));
  arch.memory_bytes = static_cast<int64_t>(bytes);
  int version = 0;
  CF_RETURN_IF_ERROR(Check(api_.DriverGetVersion(&version), "cuDriverGetVersion"));
  arch.driver_cuda_version =
      std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  arch.compute_capability = std::to_string(major) + "." + std::to_string(minor);
  return arch;
}

Result<CudaModule> CudaModule::Load(CudaContextPtr context, const std::string& image) {
  CF_RETURN_IF_ERROR(context->MakeCurrent());
  const bool ptx = image.starts_with(".version");
  if (!ptx) CF_RETURN_IF_ERROR(CheckElfBounds(image));
  cu::Module module = nullptr;
  if (const Status status =
          context->Check(context->api().ModuleLoadData(&module, image.c_str()), "cuModuleLoadData");
      !status.ok()) {
    return context->poisoned() ? status : Status::Corruption(status.message());
  }
  return CudaModule(std::move(context), module);
}

CudaModule::~CudaModule() {
  if (module_ == nullptr) return;
  const CurrentContextKeeper keeper(context_->api());
  if (context_->MakeCurrent().ok()) context_->api().ModuleUnload(module_);
}

Result<cu::Function> CudaModule::Kernel(const std::string& name) const {
  const cu::DriverApi& api = context_->api();
  cu::Function function = nullptr;
  if (const Status status =
          context_->Check(api.ModuleGetFunction(&function, module_, name.c_str()), name.c_str());
      !status.ok()) {
    if (context_->poisoned()) return status;
    return Status::InvalidArgument("the binary has no kernel '" + name +
                                   "': is it declared extern \"C\" __global__? " +
                                   status.message());
  }
  if (api.FunctionLoad != nullptr)
    CF_RETURN_IF_ERROR(context_->Check(api.FunctionLoad(function), "cuFuncLoad"));
  return function;
}

}  // namespace cudaforge
