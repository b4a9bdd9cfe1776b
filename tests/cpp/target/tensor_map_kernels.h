// Kernels that take tensor maps, for sm_90 and later.
#pragma once

namespace cudaforge {

// pad: y = x with 3 rows of zeros above, 8 columns of zeros to the left, and zeros up to whole
// tiles of 16 x 32 below and to the right. `swizzled`: x has the 128-byte swizzle.
// pad_batch: the same for matrices of a batch, tiles of 2 x 4 x 32, without rows or columns before.
// copy: y = x, both by maps.
inline constexpr char kTensorMapKernels[] = R"(
struct alignas(64) TensorMap { unsigned long long opaque[16]; };

constexpr int kColumns = 32;
constexpr int kRows = 16;
constexpr int kBatchRows = 4;
constexpr int kBatch = 2;

__device__ unsigned SharedAddress(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// One thread initialises the barrier. The fences make it visible to the copy engine.
__device__ void BarrierInit(unsigned barrier) {
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
}

__device__ void BarrierExpect(unsigned barrier, unsigned bytes) {
  asm volatile("{\n.reg .b64 t;\nmbarrier.arrive.expect_tx.shared::cta.b64 t, [%0], %1;\n}" ::"r"(barrier),
               "r"(bytes)
               : "memory");
}

__device__ void BarrierWait(unsigned barrier) {
  unsigned done = 0;
  while (done == 0) {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n"
                 "selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(barrier)
                 : "memory");
  }
}

__device__ void Load(float* to, const TensorMap& map, unsigned barrier, int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(SharedAddress(to)),
      "l"(&map), "r"(barrier), "r"(column), "r"(row)
      : "memory");
}

__device__ void Load(float* to, const TensorMap& map, unsigned barrier, int column, int row, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(SharedAddress(to)),
      "l"(&map), "r"(barrier), "r"(column), "r"(row), "r"(batch)
      : "memory");
}

// Returns when the tile is written.
__device__ void Store(const TensorMap& map, const float* from, int column, int row) {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
               "r"(SharedAddress(from)), "r"(column), "r"(row)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

extern "C" __global__ void pad(const __grid_constant__ TensorMap x, float* y, long long swizzled) {
  __shared__ __align__(1024) float tile[kRows * kColumns];
  __shared__ __align__(8) unsigned long long barrier_memory;
  const unsigned barrier = SharedAddress(&barrier_memory);
  const int left = static_cast<int>(blockIdx.x) * kColumns;
  const int top = static_cast<int>(blockIdx.y) * kRows;
  const int width = static_cast<int>(gridDim.x) * kColumns;
  BarrierInit(barrier);
  if (threadIdx.x == 0) {
    BarrierExpect(barrier, sizeof(tile));
    Load(tile, x, barrier, left - 8, top - 3);
  }
  BarrierWait(barrier);
  for (int i = threadIdx.x; i < kRows * kColumns; i += blockDim.x) {
    const int row = i / kColumns;
    const int column = i % kColumns;
    const int chunk = swizzled != 0 ? (column / 4) ^ (row % 8) : column / 4;  // of 16 bytes
    y[(top + row) * width + left + column] = tile[row * kColumns + chunk * 4 + column % 4];
  }
}

extern "C" __global__ void pad_batch(const __grid_constant__ TensorMap x, float* y) {
  __shared__ __align__(128) float tile[kBatch * kBatchRows * kColumns];
  __shared__ __align__(8) unsigned long long barrier_memory;
  const unsigned barrier = SharedAddress(&barrier_memory);
  const int left = static_cast<int>(blockIdx.x) * kColumns;
  const int top = static_cast<int>(blockIdx.y) * kBatchRows;
  const int first = static_cast<int>(blockIdx.z) * kBatch;
  const int width = static_cast<int>(gridDim.x) * kColumns;
  const int height = static_cast<int>(gridDim.y) * kBatchRows;
  BarrierInit(barrier);
  if (threadIdx.x == 0) {
    BarrierExpect(barrier, sizeof(tile));
    Load(tile, x, barrier, left, top, first);
  }
  BarrierWait(barrier);
  for (int i = threadIdx.x; i < kBatch * kBatchRows * kColumns; i += blockDim.x) {
    const int column = i % kColumns;
    const int row = i / kColumns % kBatchRows;
    const int batch = i / kColumns / kBatchRows;
    y[((first + batch) * height + top + row) * width + left + column] = tile[i];
  }
}

extern "C" __global__ void copy(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap y) {
  __shared__ __align__(1024) float tile[kRows * kColumns];
  __shared__ __align__(8) unsigned long long barrier_memory;
  const unsigned barrier = SharedAddress(&barrier_memory);
  const int left = static_cast<int>(blockIdx.x) * kColumns;
  const int top = static_cast<int>(blockIdx.y) * kRows;
  BarrierInit(barrier);
  if (threadIdx.x != 0) return;
  BarrierExpect(barrier, sizeof(tile));
  Load(tile, x, barrier, left, top);
  BarrierWait(barrier);
  Store(y, tile, left, top);
}
)";

}  // namespace cudaforge
