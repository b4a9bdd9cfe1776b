// Tensors and pairs of outputs for the tests of the screen.
#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/random.h"
#include "tests/cpp/verify/spec.h"
#include "verify/elements.h"

namespace cudaforge {

inline constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInfinite = std::numeric_limits<double>::infinity();
inline constexpr DType kEveryDType[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16,
                                        DType::kFloat64, DType::kInt64,   DType::kInt32,
                                        DType::kBool};

using Maker = std::function<double(int64_t index)>;

inline std::string Made(const TensorSpec& spec, const Maker& value) {
  std::string bytes(static_cast<size_t>(spec.StorageBytes()), '\x5a');
  for (ElementWalk walk(spec); !walk.done(); walk.Next()) {
    StoreElement(spec.dtype, value(walk.index()),
                 bytes.data() + walk.offset() * DTypeSize(spec.dtype));
  }
  return bytes;
}

// Numbers of many octaves, with zeros of both signs, denormals, NaN and infinities.
inline double Mixed(DType dtype, SplitMix& random) {
  const uint64_t kind = random.Below(40);
  if (!IsFloating(dtype)) return static_cast<double>(random.Below(dtype == DType::kBool ? 2 : 9));
  if (kind == 0) return 0.0;
  if (kind == 1) return -0.0;
  if (kind == 2) return kNoNumber;
  if (kind == 3) return kInfinite;
  if (kind == 4) return -kInfinite;
  if (kind == 5) return (random.Uniform() - 0.5) * UlpOf(dtype, 0) * 100;
  const int range = dtype == DType::kFloat16 ? 12 : 60;
  return std::ldexp(random.Normal(), static_cast<int>(random.Below(2 * range)) - range);
}

struct Pair {
  std::string aten;
  std::string candidate;
};

inline Pair MixedPair(const TensorSpec& spec, uint64_t seed) {
  SplitMix random(seed);
  std::vector<double> aten(static_cast<size_t>(spec.numel()));
  for (double& value : aten) value = Mixed(spec.dtype, random);
  const auto at = [&](int64_t i) { return aten[static_cast<size_t>(i)]; };
  return {Made(spec, at), Made(spec, [&](int64_t i) {
            const uint64_t kind = random.Below(8);
            if (kind == 0) return Mixed(spec.dtype, random);
            return kind < 4 ? at(i) : at(i) * (1 + 1e-3 * random.Normal());
          })};
}

inline std::vector<TensorSpec> Specs(DType dtype) {
  return {Spec(dtype, {}),
          Spec(dtype, {1}),
          Spec(dtype, {1, 1, 1}, {5, 3, 7}),
          Spec(dtype, {3001}),
          Spec(dtype, {17, 40, 9}),
          Spec(dtype, {40, 17, 9}, {9, 360, 1}),  // dense, two dimensions exchanged
          Spec(dtype, {31, 40}, {64, 1}),         // rows apart
          Spec(dtype, {31, 40}, {2, 100}),        // every other element, transposed
          Spec(dtype, {3, 5, 7}, {2000, 0, 3}),   // repeated
          Spec(dtype, {2, 3, 2, 5, 2, 2, 3, 2}, {5000, 1500, 700, 120, 50, 20, 5, 2})};
}

}  // namespace cudaforge
