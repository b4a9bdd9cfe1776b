#include "dispatch/cuda_driver.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include "target/cuda/driver_api.h"

namespace cudaforge {

void* CurrentStream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
}

bool IsCapturing(c10::Device device) {
  if (!device.is_cuda()) return false;
  const auto& driver = cu::DriverApi::Get();
  int status = 0;
  return driver.ok() &&
         (*driver)->StreamIsCapturing(static_cast<cu::Stream>(CurrentStream(device)), &status) ==
             0 &&
         status != 0;
}

Status BindPrimaryContext(int device_index) {
  const auto& driver = cu::DriverApi::Get();
  if (!driver.ok()) return driver.status();
  const cu::DriverApi& api = **driver;
  cu::Context context = nullptr;
  CF_RETURN_IF_ERROR(api.Check(api.ContextGetCurrent(&context), "cuCtxGetCurrent"));
  if (context != nullptr) return Status::Ok();
  cu::Device device = 0;
  CF_RETURN_IF_ERROR(api.Check(api.DeviceGet(&device, device_index), "cuDeviceGet"));
  // Retained once per thread and never released: PyTorch also holds the primary context until exit.
  CF_RETURN_IF_ERROR(
      api.Check(api.PrimaryContextRetain(&context, device), "cuDevicePrimaryCtxRetain"));
  return api.Check(api.ContextSetCurrent(context), "cuCtxSetCurrent");
}

}  // namespace cudaforge
