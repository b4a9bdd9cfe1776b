#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "dispatch/labels.h"

namespace cudaforge {
namespace {

constexpr LabelInput kFiveClasses{0, 5, -100};

at::Tensor Labels(at::IntArrayRef labels) { return at::tensor(labels); }

TEST(Labels, AreClassesOrIgnoreIndex) {
  EXPECT_TRUE(AreInRange(Labels({0, 4, 2, -100}), kFiveClasses));
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  for (const int64_t wrong : {int64_t{5}, int64_t{-1}, int64_t{100}, int64_t{-99}, kLeast}) {
    EXPECT_FALSE(AreInRange(Labels({0, wrong, 4}), kFiveClasses)) << wrong;
    EXPECT_FALSE(AreInRange(at::scalar_tensor(wrong, at::kLong), kFiveClasses)) << wrong;
  }
  EXPECT_FALSE(AreInRange(Labels({7, -1}), {0, 5, 7}));
  EXPECT_TRUE(AreInRange(Labels({7, 1}), {0, 5, 7}));
}

TEST(Labels, ChecksStridedLabels) {
  const at::Tensor all = at::tensor(at::IntArrayRef{0, 9, 1, 9, 2, 9, 3, 9}).view({4, 2});
  EXPECT_TRUE(AreInRange(all.select(1, 0), kFiveClasses));
  EXPECT_FALSE(AreInRange(all.select(1, 1), kFiveClasses));
  EXPECT_FALSE(AreInRange(all.t(), kFiveClasses));
  EXPECT_TRUE(AreInRange(all.select(1, 0).slice(0, 0, 4, 2).expand({3, 2}), kFiveClasses));
  EXPECT_FALSE(AreInRange(all.select(0, 3).slice(0, 1, 2).expand({3}), kFiveClasses));
  EXPECT_TRUE(AreInRange(all.slice(0, 0, 0), kFiveClasses)) << "none";
}

TEST(Labels, OtherTypesRunInPyTorch) {
  EXPECT_FALSE(AreInRange(at::zeros({3}, at::kByte), kFiveClasses));
}

}  // namespace
}  // namespace cudaforge
