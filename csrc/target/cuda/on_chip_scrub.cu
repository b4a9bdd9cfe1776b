// By the seed modulo four: numbers between 1 and 2 that differ from place to place, ones, NaN or
// twos.
__device__ __forceinline__ unsigned number_bits(unsigned long long seed, unsigned place) {
  const unsigned kind = static_cast<unsigned>(seed) & 3;
  if (kind == 1) return 0x3f800000u;
  if (kind == 2) return 0xffffffffu;
  if (kind == 3) return 0x40000000u;
  unsigned hash = static_cast<unsigned>(seed) ^ (place * 2654435761u);
  hash = (hash ^ (hash >> 15)) * 2246822519u + static_cast<unsigned>(seed >> 32);
  return 0x3f800000u | ((hash ^ (hash >> 13)) & 0x007fffffu);
}

// Every word of the block's shared memory, and 200 registers of each of 256 threads. `sink` is
// never written: it keeps the compiler from dropping the work.
extern "C" __global__ void __launch_bounds__(256, 1)
    scrub_shared(unsigned long long seed, unsigned words, int rounds, float* sink) {
  extern __shared__ unsigned shared[];
  volatile unsigned* const all = shared;
  for (unsigned i = threadIdx.x; i < words; i += blockDim.x) {
    all[i] = number_bits(seed, blockIdx.x * words + i);
  }
  __syncthreads();
  constexpr int kLive = 200;
  float live[kLive];
#pragma unroll
  for (int k = 0; k < kLive; ++k) {
    live[k] = __uint_as_float(all[(threadIdx.x * kLive + k) % words]);
  }
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int k = 0; k < kLive; ++k) {
      live[k] = 0.5f * (live[k] + live[(k + 1) % kLive]);
    }
  }
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < kLive; ++k) sum += live[k];
  if (sum < 0.0f) *sink = sum;
}

// 512 bytes of local memory of every thread.
extern "C" __global__ void __launch_bounds__(256)
    scrub_local(unsigned long long seed, int rounds, float* sink) {
  constexpr int kWords = 128;
  volatile unsigned local[kWords];
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
  for (int i = 0; i < kWords; ++i) local[i] = number_bits(seed, thread * kWords + i);
  float sum = 0.0f;
  for (int i = 0; i < rounds; ++i) sum += __uint_as_float(local[(i * 7 + thread) % kWords]);
  if (sum < 0.0f) *sink = sum;
}
