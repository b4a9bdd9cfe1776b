
extern "C" __global__ void __launch_bounds__(256)
    copy16(const uint4* __restrict__ from, uint4* __restrict__ to, long long n) {
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i + 3 * stride < n; i += 4 * stride) {
    const uint4 a = from[i], b = from[i + stride], c = from[i + 2 * stride],
                d = from[i + 3 * stride];
    to[i] = a;
    to[i + stride] = b;
    to[i + 2 * stride] = c;
    to[i + 3 * stride] = d;
  }
  for (; i < n; i += stride) to[i] = from[i];
}

extern "C" __global__ void __launch_bounds__(256)
    fma32(float* out, long long loops, double scale, double offset) {
  const float a = static_cast<float>(scale), b = static_cast<float>(offset);
  float x[8];
  for (int k = 0; k < 8; ++k) x[k] = 1.0f + threadIdx.x * 0.01f + k;
#pragma unroll 1
  for (long long i = 0; i < loops; ++i) {
#pragma unroll
    for (int u = 0; u < 16; ++u) {
#pragma unroll
      for (int k = 0; k < 8; ++k) x[k] = fmaf(x[k], a, b);
    }
  }
  float sum = 0.0f;
  for (int k = 0; k < 8; ++k) sum += x[k];
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Pairs of numbers between 1 and 2 of either sign: the bits after the exponent are the thread's.
template <unsigned kOne>
__device__ unsigned some_pair(unsigned seed) {
  const unsigned bits = (seed * 2654435761u) ^ (seed << 7);
  return ((bits & 0x003f003fu) | kOne | (kOne << 16)) ^ (bits & 0x80008000u);
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Here only the instruction of four warps together reaches the rate: two of 64 x 128 x 16 a loop
// are as much work as four warps do in the form below. Operands lie in shared memory, unswizzled.
#define C8(K)                                                                                 \
  "+f"(c[K]), "+f"(c[K + 1]), "+f"(c[K + 2]), "+f"(c[K + 3]), "+f"(c[K + 4]), "+f"(c[K + 5]), \
      "+f"(c[K + 6]), "+f"(c[K + 7])
#define MMA(TYPE)                                                                            \
  asm volatile(                                                                              \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE                           \
      " "                                                                                    \
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,"  \
      "%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43," \
      "%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63},"    \
      "%64,%65,1,1,1,0,0;"                                                                   \
      : C8(0), C8(8), C8(16), C8(24), C8(32), C8(40), C8(48), C8(56)                         \
      : "l"(a), "l"(b))
#define TENSOR(NAME, ONE, TYPE)                                                         \
  extern "C" __global__ void __launch_bounds__(256) NAME(float* out, long long loops) { \
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;                      \
    __shared__ __align__(128) unsigned tiles[64 * 8 + 128 * 8];                         \
    for (int i = threadIdx.x; i < 64 * 8 + 128 * 8; i += 256) {                         \
      tiles[i] = some_pair<ONE>(blockIdx.x * 4096 + i + 1);                             \
    }                                                                                   \
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");                        \
    __syncthreads();                                                                    \
    const unsigned long long form = (128ull >> 4) << 16 | (256ull >> 4) << 32;          \
    const auto at = static_cast<unsigned>(__cvta_generic_to_shared(tiles));             \
    const unsigned long long a = form | (at >> 4), b = form | ((at + 2048) >> 4);       \
    float c[64];                                                                        \
    for (int k = 0; k < 64; ++k) c[k] = 0.0f;                                           \
    for (long long i = 0; i < loops; i += 4) {                                          \
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");                           \
      for (int u = 0; u < 8; ++u) MMA(TYPE);                                            \
      asm volatile(                                                                     \
          "wgmma.commit_group.sync.aligned;\n"                                          \
          "wgmma.wait_group.sync.aligned 0;" ::                                         \
              : "memory");                                                              \
    }                                                                                   \
    float sum = 0.0f;                                                                   \
    for (int k = 0; k < 64; ++k) sum += c[k];                                           \
    out[thread] = sum;                                                                  \
  }
#else
#if __CUDA_ARCH__ >= 800
#define MMA(TYPE)                                                  \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE       \
      ".f32 "                                                      \
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"         \
      : "+f"(c[k][0]), "+f"(c[k][1]), "+f"(c[k][2]), "+f"(c[k][3]) \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#else
#define MMA(TYPE) c[k][0] += a[0] * 1.0f
#endif
#define TENSOR(NAME, ONE, TYPE)                                                         \
  extern "C" __global__ void __launch_bounds__(256) NAME(float* out, long long loops) { \
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;                      \
    unsigned a[4], b[2];                                                                \
    float c[4][4];                                                                      \
    for (int k = 0; k < 4; ++k) a[k] = some_pair<ONE>(thread * 8 + k + 1);              \
    for (int k = 0; k < 2; ++k) b[k] = some_pair<ONE>(thread * 8 + k + 5);              \
    for (int k = 0; k < 4; ++k) c[k][0] = c[k][1] = c[k][2] = c[k][3] = 0.0f;           \
    for (long long i = 0; i < loops; ++i) {                                             \
      for (int u = 0; u < 8; ++u) {                                                     \
        for (int k = 0; k < 4; ++k) MMA(TYPE);                                          \
      }                                                                                 \
    }                                                                                   \
    float sum = 0.0f;                                                                   \
    for (int k = 0; k < 4; ++k) sum += c[k][0] + c[k][1] + c[k][2] + c[k][3];           \
    out[thread] = sum;                                                                  \
  }
#endif
TENSOR(mma_bf16, 0x3f80u, "bf16")
TENSOR(mma_fp16, 0x3c00u, "f16")
