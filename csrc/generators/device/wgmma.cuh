// Around products on Hopper's tensor cores (wgmma): generators/tiles/wgmma.h writes the
// instruction. Operands are tiles in shared memory with the 128-byte swizzle: rows of 128 bytes,
// with the 16-byte chunk c of row r at chunk c ^ (r % 8); tiles begin at multiples of 1024 bytes.

__device__ __forceinline__ void MmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void MmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most kPending groups are not done. `d`: the sums that are read then.
template <int kPending, int kSize>
__device__ __forceinline__ void MmaWait(float (&d)[kSize]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#pragma unroll
  for (int i = 0; i < kSize; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// A tile whose rows hold k: 64 halves of it a row, 8 rows in 1024 bytes. 16 of k further is the
// address + 32, in the descriptor + 2.
__device__ __forceinline__ unsigned long long RowsOfK(unsigned address) {
  return static_cast<unsigned long long>((address & 0x3ffffu) >> 4) | (1ull << 16) | (64ull << 32) |
         (1ull << 62);
}

// A tile whose rows hold 64 rows of A (columns of B) at one k: 64 k are `bytes`, after which the
// next 64 rows begin. 16 of k further is the address + 2048, in the descriptor + 128.
__device__ __forceinline__ unsigned long long RowsOfOneK(unsigned address, unsigned bytes) {
  return static_cast<unsigned long long>((address & 0x3ffffu) >> 4) |
         (static_cast<unsigned long long>(bytes >> 4) << 16) | (64ull << 32) | (1ull << 62);
}
