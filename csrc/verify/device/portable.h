// Common definitions of this folder. Each text is compiled by the host's compiler (CPU) and by
// NVRTC (verify/own_kernels.h). NVRTC has only <cstdint> and <cmath>, no lambdas and no static data
// members. Constants are enumerators, literals or constexpr within a function.
#pragma once

#include <cstdint>

#ifdef __CUDACC_RTC__
#define CF_DEVICE __device__ __forceinline__
#else
#define CF_DEVICE [[gnu::always_inline]] inline
#endif

namespace cudaforge::device {

// Reinterprets the bits as another type of the same size.
template <typename To, typename From>
CF_DEVICE To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

// A value as a type, for functions that a run-time value selects.
template <typename T, T kValue>
struct Constant {};

}  // namespace cudaforge::device
