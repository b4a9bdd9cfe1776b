#include "verify/draw_lists.h"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "verify/elements.h"

namespace cudaforge {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

void SetList(const std::vector<double>& values, device::DrawnTensor* tensor) {
  const bool wide = tensor->type == device::DrawType::kFloat64;
  for (size_t k = 0; k < device::kDrawListed; ++k) {
    const double value = values[k % values.size()];
    tensor->list[k] =
        wide ? std::bit_cast<uint64_t>(value) : std::bit_cast<uint32_t>(static_cast<float>(value));
  }
}

// Zeros, infinities and NaN with ordinary numbers, most of them cancel.
std::vector<double> Ordinary(double base) {
  return {0.0, -0.0, kInfinite, -kInfinite, kNoNumber, base, -base, 1.0, -1.0,
          2.0, -2.0, base,      3.0,        0.5,       -0.5, 1.5,   -2.5};
}

// Adjacent numbers, numbers near halves, and the dtype's limits.
std::vector<double> Harsh(const DrawnInput& input, double base) {
  const DType dtype = input.spec->dtype;
  const double unit = UlpOf(dtype, 1);
  const bool half = dtype == DType::kFloat16;
  const bool wide = dtype == DType::kFloat64;
  std::vector<double> values = {base + unit,
                                base - unit,
                                -base - unit,
                                base * (1 + std::fmax(0x1p-21, 2 * unit)),
                                base * (1 + std::fmax(0x1p-11, 3 * unit)),
                                0.5 - unit / 4,
                                1 + unit,
                                half   ? 0x1p-24
                                : wide ? 0x1p-1074
                                       : 0x1p-149,
                                half   ? -0x1p-15
                                : wide ? -0x1p-1023
                                       : -0x1p-127,
                                half   ? 0x1p-14
                                : wide ? 0x1p-1022
                                       : 0x1p-126};
  const double far = half ? 0x1p14 : wide ? 0x1p900 : 0x1p100;
  for (const double value : {far, -far, 1 / far, half ? 0x1p8 : 0x1p40}) values.push_back(value);
  if (input.bears_largest) values.push_back(LargestFinite(dtype));
  return values;
}

std::vector<int64_t> Integers(DType dtype, int64_t base) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t k31 = int64_t{1} << 31, k32 = int64_t{1} << 32, k53 = int64_t{1} << 53;
  std::vector<int64_t> values = {0,
                                 1,
                                 -1,
                                 2,
                                 -3,
                                 base,
                                 base + 1,
                                 -base,
                                 k31 - 1,
                                 1 - k31,
                                 1 << 24,
                                 base * base,
                                 (1 << 24) + 1,
                                 1 << 16,
                                 (1 << 16) + 1};
  if (dtype == DType::kInt32) return values;
  for (const int64_t value : {base + k32, base - k32, base + k31, base + k53, base + k53 + 1, k31,
                              -k31, k32, k53, k53 + 1, -k53 - 1, kMost, kMost - base, -kMost,
                              kMost / 2 + base, base << 32, int64_t{5} << 32}) {
    values.push_back(value);
  }
  return values;
}

}  // namespace

void SetMeetingList(const DrawnInput& input, uint64_t shared, device::DrawnTensor* tensor) {
  if (IsFloating(input.spec->dtype)) {
    // Six bits of fraction, which every floating dtype has.
    const double base = 1 + (1 + static_cast<double>(shared % 63)) / 64;
    std::vector<double> values = Ordinary(base);
    if (input.alone) {
      for (const double value : Harsh(input, base)) values.push_back(value);
    }
    SetList(values, tensor);
    return;
  }
  const std::vector<int64_t> values =
      Integers(input.spec->dtype, 100 + static_cast<int64_t>(shared % 40000));
  for (size_t k = 0; k < device::kDrawListed; ++k) {
    tensor->list[k] = static_cast<uint64_t>(values[k % values.size()]);
  }
}

}  // namespace cudaforge
