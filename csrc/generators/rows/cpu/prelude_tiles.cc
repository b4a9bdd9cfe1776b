#include "generators/rows/cpu/prelude.h"

namespace cudaforge::rows {

const char* CpuTilePrelude() {
  return R"cpu(
// `lanes` partial results of a tile, folded with f in the fixed order of a tree.
template <typename T, typename F> CF_INLINE T cf_fold(T* t, int lanes, F f) {
  for (int half = lanes / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) t[j] = f(t[j], t[j + half]);
  }
  return t[0];
}

typedef float CfF32 __attribute__((vector_size(64), aligned(4), may_alias));
typedef double CfF64 __attribute__((vector_size(64), aligned(8), may_alias));

template <typename T> struct CfSum {  // integers: wrap
  uint64_t total = 0;
  CF_INLINE_MEMBER void Tile(const T* p, int64_t n, int64_t) {
    uint64_t s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t j = 0; j < n; ++j) s += uint64_t(int64_t(p[j]));
    total += s;
  }
  CF_INLINE_MEMBER T Result() const { return T(total); }
};
// At most 16 additions in float on any path; tiles meet in double.
template <> struct CfSum<float> {
  double lanes[16] = {};
  CF_INLINE_MEMBER void Tile(const float* p, int64_t n, int64_t) {
    CfF32 a = {}, b = {}, c = {}, d = {};
    int64_t j = 0;
    for (; j + 64 <= n; j += 64) {
      a += *reinterpret_cast<const CfF32*>(p + j);
      b += *reinterpret_cast<const CfF32*>(p + j + 16);
      c += *reinterpret_cast<const CfF32*>(p + j + 32);
      d += *reinterpret_cast<const CfF32*>(p + j + 48);
    }
    for (; j + 16 <= n; j += 16) b += *reinterpret_cast<const CfF32*>(p + j);
    alignas(64) float t[16] = {};
    for (int64_t i = j; i < n; ++i) t[i - j] = p[i];
    c += *reinterpret_cast<const CfF32*>(t);
    *reinterpret_cast<CfF32*>(t) = (a + b) + (c + d);
#pragma omp simd
    for (int i = 0; i < 16; ++i) lanes[i] += double(t[i]);
  }
  CF_INLINE_MEMBER float Result() const {
    double t[16];
    for (int i = 0; i < 16; ++i) t[i] = lanes[i];
    return float(cf_fold(t, 16, [](double x, double y) { return x + y; }));
  }
};
// total += x, with what rounding lost added to `lost` (Knuth's two-sum); infinities leave no error
// term.
CF_INLINE void cf_two_sum(double& total, double& lost, double x) {
  const double s = total + x;
  const double v = s - total;
  const double e = (total - (s - v)) + (x - v);
  lost += e == e ? e : 0.0;
  total = s;
}
template <> struct CfSum<double> {
  double lanes[8] = {}, lost[8] = {};
  CF_INLINE_MEMBER void Tile(const double* p, int64_t n, int64_t) {
    CfF64 a = {}, b = {}, c = {}, d = {};
    int64_t j = 0;
    for (; j + 32 <= n; j += 32) {
      a += *reinterpret_cast<const CfF64*>(p + j);
      b += *reinterpret_cast<const CfF64*>(p + j + 8);
      c += *reinterpret_cast<const CfF64*>(p + j + 16);
      d += *reinterpret_cast<const CfF64*>(p + j + 24);
    }
    for (; j + 8 <= n; j += 8) b += *reinterpret_cast<const CfF64*>(p + j);
    alignas(64) double t[8] = {};
    for (int64_t i = j; i < n; ++i) t[i - j] = p[i];
    c += *reinterpret_cast<const CfF64*>(t);
    *reinterpret_cast<CfF64*>(t) = (a + b) + (c + d);
#pragma omp simd
    for (int i = 0; i < 8; ++i) cf_two_sum(lanes[i], lost[i], t[i]);
  }
  CF_INLINE_MEMBER double Result() const {
    double t[8], e[8];
    for (int i = 0; i < 8; ++i) t[i] = lanes[i], e[i] = lost[i];
    auto add = [](double x, double y) { return x + y; };
    return cf_fold(t, 8, add) + cf_fold(e, 8, add);
  }
};

template <typename T> struct CfWide { using Type = uint64_t; };
template <> struct CfWide<float> { using Type = double; };
template <> struct CfWide<double> { using Type = double; };

template <typename T> struct CfProd {
  using W = typename CfWide<T>::Type;
  W total = 1;
  CF_INLINE_MEMBER void Tile(const T* p, int64_t n, int64_t) {
    W s = 1;
#pragma omp simd reduction(* : s)
    for (int64_t j = 0; j < n; ++j) s *= W(p[j]);
    total *= s;
  }
  CF_INLINE_MEMBER T Result() const { return T(total); }
};

// The largest (or smallest) of a tile, NaN if there is one: lane by lane, then a tree.
template <bool kLargest, typename T> CF_INLINE T cf_better(T x, T y) {
  return kLargest ? cf_max(x, y) : cf_min(x, y);
}
template <bool kLargest, typename T> CF_INLINE T cf_tile_extreme(const T* p, int64_t n) {
  constexpr int kLanes = 256 / sizeof(T);
  T t[kLanes];
  int64_t j = 0;
  if (n >= kLanes) {
    for (int i = 0; i < kLanes; ++i) t[i] = p[i];
    for (j = kLanes; j + kLanes <= n; j += kLanes) {
#pragma omp simd
      for (int i = 0; i < kLanes; ++i) t[i] = cf_better<kLargest>(t[i], p[j + i]);
    }
#pragma omp simd
    for (int i = 0; i < kLanes; ++i) {
      const T x = p[n - kLanes + i];  // overlaps what was seen: harmless
      t[i] = cf_better<kLargest>(t[i], x);
    }
  } else {
    for (int i = 0; i < kLanes; ++i) t[i] = p[i < n ? i : n - 1];
  }
  for (int half = kLanes / 2; half > 0; half /= 2) {
#pragma omp simd
    for (int i = 0; i < half; ++i) t[i] = cf_better<kLargest>(t[i], t[i + half]);
  }
  return t[0];
}
template <bool kLargest, typename T> inline T cf_tile_best(const T* p, int64_t n) {
  return cf_tile_extreme<kLargest>(p, n);
}
// Floats: maxima that miss NaNs, and a sum that does not. Only if the sum is NaN (also from
// infinities), the elements are checked.
#if defined(__GNUC__) && !defined(__clang__) && defined(__AVX__)
typedef float CfF32x8 __attribute__((vector_size(32)));
typedef float CfF32x8u __attribute__((vector_size(32), aligned(4), may_alias));
template <bool kLargest> CF_INLINE CfF32x8 cf_extreme(CfF32x8 x, CfF32x8 y) {
  return kLargest ? __builtin_ia32_maxps256(x, y) : __builtin_ia32_minps256(x, y);
}
template <bool kLargest> CF_INLINE float cf_float_extreme(const float* p, int64_t n) {
  if (n < 32) return cf_tile_extreme<kLargest>(p, n);
  CfF32x8 m[4], s[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) m[i] = s[i] = *reinterpret_cast<const CfF32x8u*>(p + 8 * i);
  for (int64_t j = 32; j + 32 <= n; j += 32) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const CfF32x8 x = *reinterpret_cast<const CfF32x8u*>(p + j + 8 * i);
      m[i] = cf_extreme<kLargest>(x, m[i]);
      s[i] += x;
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const CfF32x8 x = *reinterpret_cast<const CfF32x8u*>(p + n - 32 + 8 * i);
    m[i] = cf_extreme<kLargest>(x, m[i]);
    s[i] += x;
  }
  const CfF32x8 sum = (s[0] + s[1]) + (s[2] + s[3]);
  const CfF32x8 best = cf_extreme<kLargest>(cf_extreme<kLargest>(m[0], m[1]), cf_extreme<kLargest>(m[2], m[3]));
  float total = 0, result = best[0];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    total += sum[i];
    result = cf_better<kLargest>(result, float(best[i]));
  }
  return total == total ? result : cf_tile_extreme<kLargest>(p, n);
}
template <> inline float cf_tile_best<true, float>(const float* p, int64_t n) { return cf_float_extreme<true>(p, n); }
template <> inline float cf_tile_best<false, float>(const float* p, int64_t n) { return cf_float_extreme<false>(p, n); }
#endif
template <typename T> CF_INLINE T cf_lowest() {
  return T(-1) < T(0) ? T(uint64_t(1) << (8 * sizeof(T) - 1)) : T(0);
}
template <> inline float cf_lowest<float>() { return -CF_INF_F32; }
template <> inline double cf_lowest<double>() { return -CF_INF_F64; }
template <typename T> CF_INLINE T cf_highest() {
  return T(-1) < T(0) ? T((uint64_t(1) << (8 * sizeof(T) - 1)) - 1) : T(1);
}
template <> inline float cf_highest<float>() { return CF_INF_F32; }
template <> inline double cf_highest<double>() { return CF_INF_F64; }

template <bool kLargest, typename T> struct CfExtreme {
  T best = kLargest ? cf_lowest<T>() : cf_highest<T>();
  CF_INLINE_MEMBER void Tile(const T* p, int64_t n, int64_t) {
    if (n > 0) best = cf_better<kLargest>(best, cf_tile_best<kLargest, T>(p, n));
  }
  CF_INLINE_MEMBER T Result() const { return best; }
};
template <typename T> using CfMax = CfExtreme<true, T>;
template <typename T> using CfMin = CfExtreme<false, T>;

// A tile is searched for the place of its extreme only when that beats all tiles before.
template <bool kLargest, typename T> struct CfArgExtreme {
  T best = T(0);
  int64_t index = -1;
  CF_INLINE_MEMBER void Tile(const T* p, int64_t n, int64_t first) {
    if (n == 0 || best != best) return;
    const T x = cf_tile_best<kLargest, T>(p, n);
    if (index >= 0 && !(kLargest ? x > best : x < best) && x == x) return;
    best = x;
    int64_t found = n;
#pragma omp simd reduction(min : found)
    for (int64_t j = 0; j < n; ++j) {
      const bool hit = (p[j] == x) | (p[j] != p[j]);
      const int64_t place = hit ? j : n;
      found = place < found ? place : found;
    }
    index = first + found;
  }
  CF_INLINE_MEMBER int64_t Result() const { return index; }
};
template <typename T> using CfArgMax = CfArgExtreme<true, T>;
template <typename T> using CfArgMin = CfArgExtreme<false, T>;

struct CfAny {
  bool found = false;
  CF_INLINE_MEMBER void Tile(const bool* p, int64_t n, int64_t) {
    uint8_t any = 0;
#pragma omp simd reduction(| : any)
    for (int64_t j = 0; j < n; ++j) any |= uint8_t(p[j]);
    found = found | (any != 0);
  }
  CF_INLINE_MEMBER bool Result() const { return found; }
};
struct CfAll {
  bool kept = true;
  CF_INLINE_MEMBER void Tile(const bool* p, int64_t n, int64_t) {
    uint8_t all = 1;
#pragma omp simd reduction(& : all)
    for (int64_t j = 0; j < n; ++j) all &= uint8_t(p[j]);
    kept = kept & (all != 0);
  }
  CF_INLINE_MEMBER bool Result() const { return kept; }
};

#ifdef __AVX512F__
#define CF_SCAN_LANES 8
#else
#define CF_SCAN_LANES 4
#endif
// Prefixes inside a register of wide elements; only one operation per register waits for the one
// before.
template <bool kSum, typename T> struct CfScan {
  using W = typename CfWide<T>::Type;
  typedef W V __attribute__((vector_size(CF_SCAN_LANES * 8)));
  typedef T N __attribute__((vector_size(CF_SCAN_LANES * sizeof(T)), aligned(sizeof(T)), may_alias));
  W carry = kSum ? W(0) : W(1);
  CF_INLINE_MEMBER static V Join(V x, V y) { return kSum ? x + y : x * y; }
  CF_INLINE_MEMBER void Tile(T* p, int64_t n) {
    const V identity = V{} + (kSum ? W(0) : W(1));
    V before = V{} + carry;
    int64_t j = 0;
    for (; j < n; j += CF_SCAN_LANES) {
      V x = identity;
      const bool whole = j + CF_SCAN_LANES <= n;
      if (whole) {
        x = __builtin_convertvector(*reinterpret_cast<const N*>(p + j), V);
      } else {
        for (int i = 0; i < int(n - j); ++i) x[i] = W(p[j + i]);
      }
#if CF_SCAN_LANES == 8
      x = Join(x, __builtin_shufflevector(identity, x, 0, 8, 9, 10, 11, 12, 13, 14));
      x = Join(x, __builtin_shufflevector(identity, x, 0, 0, 8, 9, 10, 11, 12, 13));
      x = Join(x, __builtin_shufflevector(identity, x, 0, 0, 0, 0, 8, 9, 10, 11));
      const V last = __builtin_shufflevector(x, x, 7, 7, 7, 7, 7, 7, 7, 7);
#else
      x = Join(x, __builtin_shufflevector(identity, x, 0, 4, 5, 6));
      x = Join(x, __builtin_shufflevector(identity, x, 0, 0, 4, 5));
      const V last = __builtin_shufflevector(x, x, 3, 3, 3, 3);
#endif
      x = Join(before, x);
      before = Join(before, last);
      if (whole) {
        *reinterpret_cast<N*>(p + j) = __builtin_convertvector(x, N);
      } else {
        for (int i = 0; i < int(n - j); ++i) p[j + i] = T(x[i]);
      }
    }
    carry = before[0];
  }
};
template <typename T> using CfScanSum = CfScan<true, T>;
template <typename T> using CfScanProd = CfScan<false, T>;
)cpu";
}

}  // namespace cudaforge::rows
