// The kernels of device/draw.cu give the CPU's bits, on the host and on a GPU.
#include <gtest/gtest.h>

#include "tests/cpp/verify/cuda_on_host.h"
#include "tests/cpp/verify/drawn_forms.h"
#include "verify/device/draw.cu"
#include "verify/device_memory.h"

namespace cudaforge {
namespace {

constexpr DType kDrawnDTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16,
                                  DType::kFloat64, DType::kInt64,   DType::kInt32,
                                  DType::kBool};

using DrawKernel = void (*)(device::DrawnTensor, device::DrawKey, void*);
DrawKernel KernelOf(DType dtype) {
  constexpr DrawKernel kKernels[] = {draw_float32, draw_float16, draw_bfloat16, draw_float64,
                                     draw_int64,   draw_int32,   draw_bool};
  return kKernels[static_cast<size_t>(dtype)];
}

TEST(DrawKernels, HostRunEqualsTheLoops) {
  for (const DType dtype : kDrawnDTypes) {
    const auto size = static_cast<size_t>(DTypeSize(dtype));
    for (const device::DrawnTensor& tensor : TensorsOfEveryForm(dtype)) {
      const std::string want = BytesOfTensor(dtype, tensor, 5);
      const device::DrawKey key = device::DrawKeyOf(5, tensor.stream);
      for (const size_t offset : {size_t{0}, size}) {  // aligned to 16 bytes, and not aligned
        std::vector<std::max_align_t> memory(want.size() / sizeof(std::max_align_t) + 3);
        auto* const base = reinterpret_cast<char*>(memory.data()) + offset;
        on_host::Launch(KernelOf(dtype), 3, 32, tensor, key, static_cast<void*>(base));
        ASSERT_TRUE(want == std::string(base, want.size()))
            << DTypeName(dtype) << " form " << static_cast<int>(tensor.kinds[0].form);
      }
    }
  }
}

TEST(GpuDraw, EqualsTheCpu) {
  if (!cu::DriverApi::Get().ok()) GTEST_SKIP() << "needs a GPU";
  std::shared_ptr<OwnKernels> kernels = OwnKernels::Create(0, {}).value();
  const std::unique_ptr<DeviceMemory> memory = MakeCudaMemory(kernels);
  const auto drawer = Drawer::Create(DeviceType::kCuda, kernels.get()).value();
  for (const DType dtype : kDrawnDTypes) {
    std::vector<device::DrawnTensor> tensors = TensorsOfEveryForm(dtype);
    for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{3000, 1001}, {1001, 3000}}) {
      const TensorSpec spec = Spec(dtype, sizes);
      const OpSignature signature =
          Call("aten::sum.dim_IntList", {Arg(0), Json::array({sizes[0] > 2000 ? 0 : 1}), false},
               {spec}, {spec});
      for (const Drawn& drawn : DrawAll(signature)) tensors.push_back(drawn.set.tensors[0]);
    }
    for (const device::DrawnTensor& tensor : tensors) {
      const std::string want = BytesOfTensor(dtype, tensor, 5);
      const auto bytes = static_cast<int64_t>(want.size());
      for (const int64_t offset : {int64_t{0}, DTypeSize(dtype)}) {
        auto* const base = static_cast<char*>(memory->Scratch(bytes + 64).value()) + offset;
        DrawSet set;
        set.tensors = {tensor};
        void* const storage[] = {base};
        ASSERT_TRUE(drawer->Draw(set, RegionOfTensor(dtype, tensor), 5, storage).ok());
        std::string got(want.size(), '\0');
        ASSERT_TRUE(memory->CopyToHost(got.data(), base, bytes).ok());
        ASSERT_TRUE(want == got) << DTypeName(dtype) << " form "
                                 << static_cast<int>(tensor.kinds[0].form);
      }
    }
  }
}

}  // namespace
}  // namespace cudaforge
