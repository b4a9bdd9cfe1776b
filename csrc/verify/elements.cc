#include "verify/elements.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace cudaforge {
namespace {

// A binary floating format: bits of its fraction, and the exponents of its smallest normal and
// largest finite numbers.
struct Format {
  int fraction_bits;
  int min_exponent;
  int max_exponent;
};

Format FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return {10, -14, 15};
    case DType::kBFloat16:
      return {7, -126, 127};
    case DType::kFloat64:
      return {52, -1022, 1023};
    default:
      return {23, -126, 127};
  }
}

template <typename T>
T Load(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
void Store(T value, char* to) {
  std::memcpy(to, &value, sizeof(T));
}

double LoadHalf(const char* from) {
  const auto bits = Load<uint16_t>(from);
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  double magnitude;
  if (exponent == 31) {
    magnitude = fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                              : std::numeric_limits<double>::infinity();
  } else if (exponent == 0) {
    magnitude = std::ldexp(fraction, -24);
  } else {
    magnitude = std::ldexp(1024 + fraction, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

// The bits of a value that RoundTo has made representable.
uint16_t HalfBits(double rounded) {
  const uint16_t sign = std::signbit(rounded) ? 0x8000 : 0;
  const double magnitude = std::fabs(rounded);
  if (std::isnan(rounded)) return static_cast<uint16_t>(sign | 0x7e00);
  if (std::isinf(rounded)) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < 0x1p-14) {
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(magnitude * 0x1p24));
  }
  const int exponent = std::ilogb(magnitude);
  const int fraction = static_cast<int>(std::ldexp(magnitude, 10 - exponent)) - 1024;
  return static_cast<uint16_t>(sign | ((exponent + 15) << 10) | fraction);
}

template <typename T>
T Saturate(double value) {
  if (std::isnan(value)) return 0;
  if (value >= static_cast<double>(std::numeric_limits<T>::max())) {
    return std::numeric_limits<T>::max();
  }
  if (value <= static_cast<double>(std::numeric_limits<T>::min())) {
    return std::numeric_limits<T>::min();
  }
  return static_cast<T>(value);
}

// floor(log2|value|) for a finite non-zero value, without a library call for normal numbers.
int Exponent(double value) {
  const int biased = static_cast<int>(std::bit_cast<uint64_t>(value) >> 52) & 2047;
  return biased != 0 ? biased - 1023 : std::ilogb(value);
}

double PowerOfTwo(int exponent) {
  if (exponent >= -1022) return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
  return std::ldexp(1.0, exponent);
}

}  // namespace

double LargestFinite(DType dtype) {
  const Format format = FormatOf(dtype);
  return (2 - PowerOfTwo(-format.fraction_bits)) * PowerOfTwo(format.max_exponent);
}

double LoadElement(DType dtype, const char* from) {
  switch (dtype) {
    case DType::kFloat32:
      return Load<float>(from);
    case DType::kFloat16:
      return LoadHalf(from);
    case DType::kBFloat16:
      return std::bit_cast<float>(static_cast<uint32_t>(Load<uint16_t>(from)) << 16);
    case DType::kFloat64:
      return Load<double>(from);
    case DType::kInt64:
      return static_cast<double>(Load<int64_t>(from));
    case DType::kInt32:
      return Load<int32_t>(from);
    case DType::kBool:
      return *from != 0 ? 1 : 0;
  }
  return 0;
}

double UlpOf(DType dtype, double value) {
  const Format format = FormatOf(dtype);
  const int exponent = value == 0
                           ? format.min_exponent
                           : std::clamp(Exponent(value), format.min_exponent, format.max_exponent);
  return PowerOfTwo(exponent - format.fraction_bits);
}

double ComputeRoundoff(DType dtype) { return dtype == DType::kFloat64 ? 0x1p-53 : 0x1p-24; }
double ComputeUnderflow(DType dtype) { return dtype == DType::kFloat64 ? 0 : 0x1p-150; }

double RoundTo(DType dtype, double value) {
  if (dtype == DType::kFloat64 || !std::isfinite(value)) return value;
  if (dtype == DType::kFloat32) return static_cast<float>(value);
  const double ulp = UlpOf(dtype, value);
  const double rounded = std::nearbyint(value / ulp) * ulp;
  if (std::fabs(rounded) > LargestFinite(dtype)) {
    return std::copysign(std::numeric_limits<double>::infinity(), value);
  }
  return std::copysign(rounded, value);
}

void StoreElement(DType dtype, double value, char* to) {
  switch (dtype) {
    case DType::kFloat32:
      return Store(static_cast<float>(value), to);
    case DType::kFloat16:
      return Store(HalfBits(RoundTo(dtype, value)), to);
    case DType::kBFloat16: {
      const auto bits = std::bit_cast<uint32_t>(static_cast<float>(RoundTo(dtype, value)));
      return Store(static_cast<uint16_t>(bits >> 16), to);
    }
    case DType::kFloat64:
      return Store(value, to);
    case DType::kInt64:
      return Store(Saturate<int64_t>(value), to);
    case DType::kInt32:
      return Store(Saturate<int32_t>(value), to);
    case DType::kBool:
      return Store(static_cast<char>(value != 0 ? 1 : 0), to);
  }
}

ElementWalk::ElementWalk(const TensorSpec& spec, bool skip_repeats)
    : sizes_(spec.sizes), strides_(spec.strides), position_(spec.sizes.size(), 0), left_(1) {
  for (size_t d = 0; d < sizes_.size(); ++d) {
    if (skip_repeats && strides_[d] == 0 && sizes_[d] > 1) sizes_[d] = 1;
    left_ *= sizes_[d];
  }
}

ElementWalk::ElementWalk(const TensorSpec& spec, bool skip_repeats, int64_t begin, int64_t end)
    : ElementWalk(spec, skip_repeats) {
  CF_CHECK(0 <= begin && begin <= end && end <= left_) << "a part of the elements";
  left_ = end - begin;
  index_ = begin;
  if (left_ == 0) return;
  position_ = Unflatten(sizes_, begin);
  for (size_t d = 0; d < sizes_.size(); ++d) offset_ += position_[d] * strides_[d];
}

void ElementWalk::Next() {
  --left_;
  ++index_;
  for (size_t d = sizes_.size(); d-- > 0;) {
    offset_ += strides_[d];
    if (++position_[d] < sizes_[d]) return;
    offset_ -= strides_[d] * sizes_[d];
    position_[d] = 0;
  }
}

std::vector<int64_t> Unflatten(const std::vector<int64_t>& sizes, int64_t index) {
  std::vector<int64_t> position(sizes.size());
  for (size_t d = sizes.size(); d-- > 0;) {
    position[d] = index % sizes[d];
    index /= sizes[d];
  }
  return position;
}

}  // namespace cudaforge
