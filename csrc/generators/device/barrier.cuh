// Barriers in shared memory (mbarrier), named barriers, for sm_90 and later. An address
// is one of shared memory, as SharedAddress gives it. PTX ISA, "Parallel Synchronization and
// Communication Instructions".

__device__ __forceinline__ unsigned SharedAddress(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// A phase of the barrier ends after `count` arrivals and all bytes that were announced.
__device__ __forceinline__ void BarrierInit(unsigned barrier, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

// Makes initialised barriers visible to copies.
__device__ __forceinline__ void BarrierInitDone() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void BarrierArrive(unsigned barrier) {
  asm volatile("{\n.reg .b64 t;\nmbarrier.arrive.shared::cta.b64 t, [%0];\n}" ::"r"(barrier)
               : "memory");
}

// Arrives, and announces `bytes` of copies.
__device__ __forceinline__ void BarrierExpect(unsigned barrier, unsigned bytes) {
  asm volatile(
      "{\n.reg .b64 t;\nmbarrier.arrive.expect_tx.shared::cta.b64 t, [%0], %1;\n}" ::"r"(barrier),
      "r"(bytes)
      : "memory");
}

// Waits for the end of the phase with this parity. The phase before the first has parity 1.
__device__ __forceinline__ void BarrierWait(unsigned barrier, unsigned parity) {
  unsigned done = 0;
  while (done == 0) {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

// Of the threads that name it; `threads` of them, a multiple of 32. Barrier 0 is __syncthreads.
__device__ __forceinline__ void NamedBarrier(int barrier, int threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Counts as these threads, without a wait.
__device__ __forceinline__ void NamedBarrierArrive(int barrier, int threads) {
  asm volatile("barrier.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// As NamedBarrier; true for all of them if `mine` is true for one.
__device__ __forceinline__ bool NamedBarrierOr(int barrier, int threads, bool mine) {
  unsigned any;
  asm volatile(
      "{\n.reg .pred p, q;\nsetp.ne.u32 p, %1, 0;\n"
      "barrier.red.or.pred q, %2, %3, p;\n"
      "selp.u32 %0, 1, 0, q;\n}"
      : "=r"(any)
      : "r"(static_cast<unsigned>(mine)), "r"(barrier), "r"(threads)
      : "memory");
  return any != 0;
}
