// Asynchronous copies of boxes of a tensor (TMA) from global to shared memory, for sm_90 and later.
// A kernel takes a launch plan's tensor map as `const __grid_constant__ CfTensorMap map`. The
// barrier must expect the bytes of the whole box (BarrierExpect): what is outside of the tensor
// comes as zeros.
struct alignas(64) CfTensorMap {
  unsigned long long opaque[16];
};

// The box at elements (x, y, z), the innermost dimension first, of a map with three dimensions.
__device__ __forceinline__ void TensorCopy(unsigned to, const CfTensorMap& map, int x, int y, int z,
                                           unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
      "l"(reinterpret_cast<unsigned long long>(&map)), "r"(barrier), "r"(x), "r"(y), "r"(z)
      : "memory");
}
