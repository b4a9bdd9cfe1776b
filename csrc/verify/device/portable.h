// What the texts of this folder share. Each is compiled twice: by the host's compiler, for the
// verifier on the CPU, and by NVRTC as a part of the verifier's own kernels (verify/own_kernels.h),
// which knows no standard header but <cstdint> and <cmath>, takes no lambdas and refuses static
// data members: a constant is an enumerator, a literal or constexpr within a function.
#pragma once

#include <cstdint>

#ifdef __CUDACC_RTC__
#define CF_DEVICE __device__ __forceinline__
#else
#define CF_DEVICE [[gnu::always_inline]] inline
#endif

namespace cudaforge::device {

// The same bits as another type of the same size.
template <typename To, typename From>
CF_DEVICE To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

// A value as a type, for functions that a run-time value chooses among.
template <typename T, T kValue>
struct Constant {};

}  // namespace cudaforge::device
