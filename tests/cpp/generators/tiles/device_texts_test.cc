#include "generators/tiles/device_texts.h"

#include <gtest/gtest.h>

#include "generators/tiles/wgmma.h"
#include "target/cuda/nvrtc_compiler.h"

namespace cudaforge::tiles {
namespace {

// Calls all that device/ offers but products.
constexpr const char* kCopies = R"(
extern "C" __global__ void copies(const __grid_constant__ CfTensorMap map,
                                  const unsigned char* from, float* out) {
  __shared__ __align__(1024) float tile[1024];
  __shared__ __align__(8) unsigned long long memory[1];
  const unsigned barrier = SharedAddress(memory), to = SharedAddress(tile);
  if (threadIdx.x == 0) {
    BarrierInit(barrier, 2);
    BarrierInitDone();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    BarrierExpect(barrier, 4096);
    BulkCopy(to, from, 2048, barrier);
    TensorCopy(to + 2048, map, 0, 0, 0, barrier);
    BarrierArrive(barrier);
  }
  BarrierWait(barrier, 0);
  NamedBarrier(1, 128);
  NamedBarrierArrive(2, 256);
  out[threadIdx.x] = NamedBarrierOr(3, 128, tile[threadIdx.x] > 0) ? 1.0f : 0.0f;
}
)";

constexpr const char* kProducts = R"(
extern "C" __global__ void __launch_bounds__(128) products(float* out) {
  __shared__ __align__(1024) unsigned char tile[32768];
  const unsigned at = SharedAddress(tile);
  float d[64] = {};
  MmaFence();
  Mma<0>(d, RowsOfK(at), RowsOfK(at + 16384));
  Mma<1>(d, RowsOfK(at) + 2, RowsOfK(at + 16384) + 2);
  MmaCommit();
  MmaWait<0>(d);
  for (int i = 0; i < 64; ++i) out[threadIdx.x * 64 + i] = d[i];
}
)";

// Calls all of device/async_copy.cuh and device/mma.cuh.
constexpr const char* kFragments = R"(
extern "C" __global__ void fragments(const uint4* from, int bytes, float* out) {
  __shared__ uint4 tile[64];
  const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(tile));
  AsyncCopy(at + threadIdx.x * 16, from + threadIdx.x);
  AsyncCommit();
  AsyncCopy(at + threadIdx.x * 16 + 512, from + threadIdx.x + 32, bytes);
  AsyncCommit();
  AsyncWait<1>();
  AsyncWait<0>();
  __syncthreads();
  unsigned a[4], b[4];
  LoadMatrices(at + threadIdx.x * 16, a);
  LoadTransposed(at + threadIdx.x * 16 + 512, b);
  float d[4] = {};
  MultiplyFragments<false>(d, a, b[0], b[1]);
  MultiplyFragments<true>(d, a, b[2], b[3]);
  const unsigned short halves[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  StoreHalves(at + threadIdx.x * 16, halves);
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i];
}
)";

void ExpectCompiles(const std::string& code, const char* arch, const char* kernel) {
  const Result<NvrtcCompiler> compiler = NvrtcCompiler::Create();
  if (!compiler.ok()) GTEST_SKIP() << "needs NVRTC: set CUDAFORGE_CUDA_PATH";
  SCOPED_TRACE(arch);
  const CompileResult result = compiler->Compile(code, arch);
  ASSERT_TRUE(result.ok) << result.log;
  EXPECT_EQ(result.resources.at(kernel).at("spill_bytes"), 0);
}

TEST(DeviceTextsNvrtc, CopiesCompileForEveryGpuThatHasThem) {
  for (const char* arch : {"sm_90", "sm_90a", "sm_100a", "sm_120a"}) {
    ExpectCompiles(
        DeviceText({"device/barrier.cuh", "device/bulk_copy.cuh", "device/tensor_copy.cuh"}) +
            kCopies,
        arch, "copies");
  }
}

TEST(DeviceTextsNvrtc, FragmentsCompileForEveryGpuThatHasThem) {
  for (const char* arch : {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120"}) {
    ExpectCompiles(
        DeviceText({"device/async_copy.cuh", "device/matrices.cuh", "device/mma.cuh"}) + kFragments,
        arch, "fragments");
  }
}

TEST(DeviceTextsNvrtc, ProductsCompileForHopper) {
  for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    ExpectCompiles(DeviceText({"device/barrier.cuh", "device/wgmma.cuh"}) +
                       MmaText({.n = 128, .dtype = dtype}) + kProducts,
                   "sm_90a", "products");
  }
}

}  // namespace
}  // namespace cudaforge::tiles
