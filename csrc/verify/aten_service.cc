#include <dlfcn.h>

#include <random>
#include <string>

#include "signature/aten_numerics.h"
#include "signature/aten_pch.h"
#include "verify/aten_region_reference.h"
#include "verify/service.h"

namespace cudaforge {
namespace {

class TorchReference : public Reference {
 public:
  explicit TorchReference(int device_index) : device_index_(device_index) {}
  Result<std::unique_ptr<RegionReference>> Open(const OpSignature& region, DeviceMemory& memory,
                                                int64_t free_bytes) override {
    SetNumerics(region.numerics);
    std::random_device random;
    const uint64_t seed = (uint64_t{random()} << 32) | random();
    return MakeAtenRegionReference(region, device_index_, memory, free_bytes, seed);
  }

 private:
  const int device_index_;
};

}  // namespace

Result<std::unique_ptr<Reference>> MakeAtenReference(const VerifierSetup& setup) {
  if (setup.device == DeviceType::kCuda) {
    // Loading the library registers ATen's CUDA kernels.
    if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      return Status::Unavailable(std::string("the verifier cannot load PyTorch's CUDA part: ") +
                                 dlerror());
    }
    if (!at::hasCUDA()) return Status::Unavailable("PyTorch has no CUDA part");
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  }
  return std::unique_ptr<Reference>(std::make_unique<TorchReference>(setup.device_index));
}

}  // namespace cudaforge
