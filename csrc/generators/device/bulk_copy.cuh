// Asynchronous copies of whole pieces from global to shared memory, for sm_90 and later. The
// barrier must expect the bytes (BarrierExpect). Addresses and sizes are multiples of 16 bytes.

__device__ __forceinline__ void BulkCopy(unsigned to, const void* from, unsigned bytes,
                                         unsigned barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
      : "memory");
}
