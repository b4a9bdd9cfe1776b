#include "verify/elements.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "tests/cpp/verify/spec.h"

namespace cudaforge {
namespace {

TEST(Elements, RoundTripOfEveryHalf) {
  for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const char in[2] = {static_cast<char>(bits & 255), static_cast<char>(bits >> 8)};
      const double value = LoadElement(dtype, in);
      char out[2];
      StoreElement(dtype, value, out);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(LoadElement(dtype, out)));
      } else {
        ASSERT_EQ(std::string(in, 2), std::string(out, 2)) << DTypeName(dtype) << " " << bits;
      }
    }
  }
}

TEST(Elements, RoundingAndSpacing) {
  EXPECT_EQ(RoundTo(DType::kFloat16, 65519.9), 65504);
  EXPECT_TRUE(std::isinf(RoundTo(DType::kFloat16, 65520)));
  EXPECT_EQ(RoundTo(DType::kFloat16, 2049), 2048);  // to even
  EXPECT_EQ(RoundTo(DType::kBFloat16, 257), 256);
  EXPECT_EQ(UlpOf(DType::kFloat32, 1), 0x1p-23);
  EXPECT_EQ(UlpOf(DType::kFloat32, 0), 0x1p-149);
  EXPECT_EQ(UlpOf(DType::kFloat16, 1e-9), 0x1p-24);
  EXPECT_EQ(UlpOf(DType::kFloat64, 1.5), 0x1p-52);
}

TEST(Elements, PartsOfAWalkCoverTheWhole) {
  TensorSpec spec = Spec(DType::kFloat32, {3, 1, 5, 2});
  spec.strides = {0, 7, 4, 1};
  for (bool skip_repeats : {false, true}) {
    for (int64_t cut : {0, 1, 5, 10}) {
      ElementWalk whole(spec, skip_repeats);
      const int64_t n = whole.left();
      for (auto [begin, end] : {std::pair{int64_t{0}, cut}, std::pair{cut, n}}) {
        ElementWalk part(spec, skip_repeats, begin, end);
        for (; !part.done(); part.Next(), whole.Next()) {
          ASSERT_EQ(part.index(), whole.index());
          ASSERT_EQ(part.offset(), whole.offset());
          ASSERT_EQ(part.position(), whole.position());
        }
      }
      EXPECT_TRUE(whole.done());
    }
  }
}

}  // namespace
}  // namespace cudaforge
