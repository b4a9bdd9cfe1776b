// Four matrices of 8 x 8 halves between registers and rows of 16 bytes in shared memory (ldmatrix,
// stmatrix). Lane 8 i + r has the address of row r of matrix i. A lane has two neighbours of each:
// row lane / 4, columns lane % 4 * 2 and the next.
__device__ __forceinline__ void LoadMatrices(unsigned from, unsigned (&pairs)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
               : "r"(from)
               : "memory");
}
// Of the transposed matrices: columns in memory are rows in registers.
__device__ __forceinline__ void LoadTransposed(unsigned from, unsigned (&pairs)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
               : "r"(from)
               : "memory");
}
// Since sm_90.
__device__ __forceinline__ void StoreMatrices(unsigned to, const unsigned (&pairs)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
               : "memory");
}

// Sixteen bytes at an address of shared memory that is a multiple of 16.
__device__ __forceinline__ void StoreShared(unsigned to, uint4 x) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z),
               "r"(x.w)
               : "memory");
}
__device__ __forceinline__ uint4 LoadShared(unsigned from) {
  uint4 x;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "r"(from)
               : "memory");
  return x;
}
