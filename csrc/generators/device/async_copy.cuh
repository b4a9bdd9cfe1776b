// Asynchronous copies from global to shared memory (cp.async), for sm_80 and later. `to` is an
// address of shared memory, as __cvta_generic_to_shared gives it. Addresses are multiples of the
// size that is copied: 16 bytes, 8 or 4. A thread waits for its own copies; a barrier makes them
// visible to other threads.

__device__ __forceinline__ void AsyncCopy(unsigned to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to),
               "l"(__cvta_generic_to_global(from))
               : "memory");
}

// The first `bytes` of the 16, then zeros; what follows them is not read.
__device__ __forceinline__ void AsyncCopy(unsigned to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to),
               "l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
}

// The same of kSize bytes.
template <int kSize>
__device__ __forceinline__ void AsyncCopyOf(unsigned to, const void* from, int bytes) {
  if constexpr (kSize == 16) {
    AsyncCopy(to, from, bytes);
  } else {
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %2, %3;" ::"r"(to),
                 "l"(__cvta_generic_to_global(from)), "n"(kSize), "r"(bytes)
                 : "memory");
  }
}

// Ends a group of copies, which may be empty.
__device__ __forceinline__ void AsyncCommit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most the kPending latest groups of the thread are not done.
template <int kPending>
__device__ __forceinline__ void AsyncWait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
