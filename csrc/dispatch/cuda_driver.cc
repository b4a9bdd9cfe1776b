#include "dispatch/cuda_driver.h"

#include <string>

#include "base/dynamic_library.h"

namespace cudaforge {
namespace {

using CUresult = int;
using CUdevice = int;
using CUcontext = void*;
using CUstream = void*;

struct Driver {
  CUresult (*ctx_get_current)(CUcontext*) = nullptr;
  CUresult (*ctx_set_current)(CUcontext) = nullptr;
  CUresult (*device_get)(CUdevice*, int) = nullptr;
  CUresult (*primary_ctx_retain)(CUcontext*, CUdevice) = nullptr;
  CUresult (*stream_is_capturing)(CUstream, int*) = nullptr;
  bool ok = false;
};

template <typename Function>
bool Load(const DynamicLibrary& library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(library.Symbol(name));
  return *function != nullptr;
}

const Driver& GetDriver() {
  // The library stays open: its functions may be called as long as the process lives.
  static const Driver* driver = [] {
    auto* loaded = new Driver;
    auto opened = DynamicLibrary::Open({"libcuda.so.1"});
    if (!opened.ok()) return loaded;
    auto* library = new DynamicLibrary(std::move(opened).value());
    loaded->ok = Load(*library, "cuCtxGetCurrent", &loaded->ctx_get_current) &&
                 Load(*library, "cuCtxSetCurrent", &loaded->ctx_set_current) &&
                 Load(*library, "cuDeviceGet", &loaded->device_get) &&
                 Load(*library, "cuDevicePrimaryCtxRetain", &loaded->primary_ctx_retain) &&
                 Load(*library, "cuStreamIsCapturing", &loaded->stream_is_capturing);
    return loaded;
  }();
  return *driver;
}

}  // namespace

bool IsCapturing(void* stream) {
  const Driver& driver = GetDriver();
  int status = 0;
  return driver.ok && driver.stream_is_capturing(stream, &status) == 0 && status != 0;
}

Status BindPrimaryContext(int device_index) {
  const Driver& driver = GetDriver();
  if (!driver.ok) return Status::Unavailable("libcuda.so.1 is missing or too old");
  CUcontext context = nullptr;
  CUresult result = driver.ctx_get_current(&context);
  if (result == 0 && context != nullptr) return Status::Ok();
  CUdevice device = 0;
  if (result == 0) result = driver.device_get(&device, device_index);
  // Retained once a thread and never released: PyTorch holds the primary context until the process
  // ends too.
  if (result == 0) result = driver.primary_ctx_retain(&context, device);
  if (result == 0) result = driver.ctx_set_current(context);
  if (result == 0) return Status::Ok();
  return Status::Unavailable("CUDA driver error " + std::to_string(result));
}

}  // namespace cudaforge
