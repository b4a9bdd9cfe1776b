// What kernels for Hopper have in PTX, apart from device/.

// For all threads of a warpgroup: from here on they have at most, or at least, kCount registers.
template <int kCount>
__device__ __forceinline__ void LowerRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ __forceinline__ void RaiseRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

// threadIdx.x, read in place: nothing computed from it is in registers before.
__device__ __forceinline__ int ThreadHere() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

// Floats at an address of shared memory; four are at a multiple of 16.
__device__ __forceinline__ float SharedFloat(unsigned address) {
  float x;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
  return x;
}
__device__ __forceinline__ void SharedFloats(unsigned address, float (&x)[4]) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
               : "r"(address)
               : "memory");
}

// Has the 128 bytes around a global address brought to the L2 cache.
__device__ __forceinline__ void PrefetchLine(const void* at) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

// What the thread has written to shared memory is seen by products that begin after a barrier.
__device__ __forceinline__ void ShowToProducts() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
