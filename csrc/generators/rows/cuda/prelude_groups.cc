#include "generators/rows/cuda/prelude.h"

namespace cudaforge::rows {
namespace {

constexpr std::string_view kGroups = R"cuda(
template <class T> struct CfLimit {};
template <> struct CfLimit<float> { static CF_DEVICE float Low() { return -CF_INF_F32; } static CF_DEVICE float High() { return CF_INF_F32; } };
template <> struct CfLimit<double> { static CF_DEVICE double Low() { return -CF_INF_F64; } static CF_DEVICE double High() { return CF_INF_F64; } };
template <> struct CfLimit<int32_t> { static CF_DEVICE int32_t Low() { return -2147483647 - 1; } static CF_DEVICE int32_t High() { return 2147483647; } };
template <> struct CfLimit<int64_t> { static CF_DEVICE int64_t Low() { return -9223372036854775807LL - 1; } static CF_DEVICE int64_t High() { return 9223372036854775807LL; } };
template <> struct CfLimit<bool> { static CF_DEVICE bool Low() { return false; } static CF_DEVICE bool High() { return true; } };

#define CF_OP(name, identity, expression)                             \
  template <class T>                                                  \
  struct name {                                                       \
    using State = T;                                                  \
    static CF_DEVICE T Identity() { return identity; }                \
    static CF_DEVICE T Of(T x, int64_t) { return x; }                 \
    static CF_DEVICE T Combine(T a, T b) { return expression; }       \
    static CF_DEVICE T Result(T x) { return x; }                      \
  };
CF_OP(CfSum, T(0), a + b)
CF_OP(CfProd, T(1), a * b)
CF_OP(CfMax, CfLimit<T>::Low(), cf_max(a, b))
CF_OP(CfMin, CfLimit<T>::High(), cf_min(a, b))
CF_OP(CfAny, false, a || b)
CF_OP(CfAll, true, a && b)
#undef CF_OP

template <class T>
struct CfIndexed { T value; int64_t index; };
template <class T, bool kLargest>
struct CfArg {
  using State = CfIndexed<T>;
  static CF_DEVICE State Identity() {
    return State{kLargest ? CfLimit<T>::Low() : CfLimit<T>::High(), 9223372036854775807LL};
  }
  static CF_DEVICE State Of(T x, int64_t index) { return State{x, index}; }
  // NaN beats everything; among equals, and among NaNs, the first index wins: the order of
  // combining does not matter.
  static CF_DEVICE State Combine(State a, State b) {
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    const bool better = kLargest ? a.value > b.value : a.value < b.value;
    const bool same = a.value == b.value || (a_nan && b_nan);
    return (a_nan && !b_nan) || (!b_nan && better) || (same && a.index < b.index) ? a : b;
  }
  static CF_DEVICE int64_t Result(State x) { return x.index; }
};
template <class T> using CfArgMax = CfArg<T, true>;
template <class T> using CfArgMin = CfArg<T, false>;

// Two-sum: `lost` gathers what `sum` rounds away.
CF_DEVICE void cf_accumulate(float& sum, float& lost, float x) {
  const float t = sum + x;
  const float from_x = t - sum;
  lost += (sum - (t - from_x)) + (x - from_x);
  sum = t;
}
CF_DEVICE float cf_settle(float sum, float lost) { return fabsf(sum) < CF_INF_F32 ? sum + lost : sum; }

template <class T>
CF_DEVICE T cf_xor(T x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
CF_DEVICE bool cf_xor(bool x, int mask) { return __shfl_xor_sync(0xffffffffu, (int)x, mask) != 0; }
template <class T>
CF_DEVICE CfIndexed<T> cf_xor(CfIndexed<T> x, int mask) {
  return CfIndexed<T>{cf_xor(x.value, mask), cf_xor(x.index, mask)};
}

// The combination over aligned groups of G <= 32 lanes, the same bits in every lane; with S > 1,
// over every S-th lane.
template <class Op, int G, int S = 1>
CF_DEVICE typename Op::State cf_lanes(typename Op::State x) {
#pragma unroll
  for (int mask = G / 2; mask >= S; mask /= 2) x = Op::Combine(x, cf_xor(x, mask));
  return x;
}

template <class Op, int V>
CF_DEVICE typename Op::State cf_tree(const typename Op::State (&p)[V]) {
  typename Op::State x[V];
#pragma unroll
  for (int k = 0; k < V; ++k) x[k] = p[k];
#pragma unroll
  for (int width = V / 2; width > 0; width /= 2) {
#pragma unroll
    for (int k = 0; k < width; ++k) x[k] = Op::Combine(x[k], x[k + width]);
  }
  return x[0];
}

// The combination over the block's y for column tx, vector element k.
template <class Op, int TX, int TY, int V>
CF_DEVICE typename Op::State cf_column(const typename Op::State* shared, int tx, int k) {
  typename Op::State x = shared[k * TX + tx];
#pragma unroll
  for (int y = 1; y < TY; ++y) x = Op::Combine(x, shared[(y * V + k) * TX + tx]);
  return x;
}

// Inclusive scan along u, then threads, then k of one chunk: element (u, t, k) is at position (u *
// G + t) * V + k. shared: 2 * U * 32 states, used when G > 32; `parity` alternates between calls.
// Every thread of the block calls it.
template <class Op, int G, int U, int V>
CF_DEVICE void cf_scan_row(typename Op::State (&x)[U][V], typename Op::State& carry,
                           typename Op::State* shared, int parity, int t) {
  using State = typename Op::State;
  constexpr int kLanes = G < 32 ? G : 32;
  constexpr int kWarps = G / kLanes;
  const int lane = t % kLanes;
  const int warp = t / kLanes;
  State before[U], total[U];
#pragma unroll
  for (int u = 0; u < U; ++u) {
#pragma unroll
    for (int k = 1; k < V; ++k) x[u][k] = Op::Combine(x[u][k - 1], x[u][k]);
    State sum = x[u][V - 1];
#pragma unroll
    for (int d = 1; d < kLanes; d *= 2) {
      const State lower = __shfl_up_sync(0xffffffffu, sum, d, kLanes);
      if (lane >= d) sum = Op::Combine(lower, sum);
    }
    const State lower = __shfl_up_sync(0xffffffffu, sum, 1, kLanes);
    before[u] = lane == 0 ? Op::Identity() : lower;
    if constexpr (kWarps == 1) {
      total[u] = __shfl_sync(0xffffffffu, sum, kLanes - 1, kLanes);
    } else {
      if (lane == kLanes - 1) shared[(parity * U + u) * 32 + warp] = sum;
    }
  }
  if constexpr (kWarps > 1) {
    __syncthreads();
#pragma unroll
    for (int u = 0; u < U; ++u) {
      State sum = shared[(parity * U + u) * 32 + lane % kWarps];
#pragma unroll
      for (int d = 1; d < kWarps; d *= 2) {
        const State lower = __shfl_up_sync(0xffffffffu, sum, d, kWarps);
        if (lane % kWarps >= d) sum = Op::Combine(lower, sum);
      }
      total[u] = __shfl_sync(0xffffffffu, sum, kWarps - 1, kWarps);
      const State lower = __shfl_sync(0xffffffffu, sum, warp > 0 ? warp - 1 : 0, kWarps);
      if (warp > 0) before[u] = Op::Combine(lower, before[u]);
    }
  }
#pragma unroll
  for (int u = 0; u < U; ++u) {
    const State prefix = Op::Combine(carry, before[u]);
#pragma unroll
    for (int k = 0; k < V; ++k) x[u][k] = Op::Combine(prefix, x[u][k]);
    carry = Op::Combine(carry, total[u]);
  }
}

// Inclusive scan of V columns: element (ty, u) is at position ty * U + u. shared: 2 * TY * V * TX
// states when TY > 1.
template <class Op, int TX, int TY, int U, int V>
CF_DEVICE void cf_scan_column(typename Op::State (&x)[U][V], typename Op::State (&carry)[V],
                              typename Op::State* shared, int parity, int tx, int ty) {
  using State = typename Op::State;
#pragma unroll
  for (int u = 1; u < U; ++u) {
#pragma unroll
    for (int k = 0; k < V; ++k) x[u][k] = Op::Combine(x[u - 1][k], x[u][k]);
  }
  State prefix[V];
#pragma unroll
  for (int k = 0; k < V; ++k) prefix[k] = carry[k];
  if constexpr (TY == 1) {
#pragma unroll
    for (int k = 0; k < V; ++k) carry[k] = Op::Combine(carry[k], x[U - 1][k]);
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k) shared[((parity * TY + ty) * V + k) * TX + tx] = x[U - 1][k];
    __syncthreads();
#pragma unroll
    for (int y = 0; y < TY; ++y) {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        if (y == ty) prefix[k] = carry[k];
        carry[k] = Op::Combine(carry[k], shared[((parity * TY + y) * V + k) * TX + tx]);
      }
    }
  }
#pragma unroll
  for (int u = 0; u < U; ++u) {
#pragma unroll
    for (int k = 0; k < V; ++k) x[u][k] = Op::Combine(prefix[k], x[u][k]);
  }
}
)cuda";

}  // namespace

std::string_view CudaGroupPrelude() { return kGroups; }

}  // namespace cudaforge::rows
