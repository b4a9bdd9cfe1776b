// What a single special value in a row tells of kernels.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/cpp/verify/region_aten.h"

namespace cudaforge {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

// Cases in which these outputs pass.
size_t Passed(const OpSignature& signature, const RegionChecker& checker,
              const std::function<std::vector<at::Tensor>(const at::Tensor&)>& kernel) {
  size_t passed = 0;
  for (size_t i = 0; i < checker.case_count(); ++i) {
    std::vector<std::string> outputs;
    for (const at::Tensor& t : kernel(Tensors(signature, checker.inputs(i))[0])) {
      outputs.push_back(BytesOf(t));
    }
    passed += checker.Check(i, outputs).accepted() ? 1 : 0;
  }
  return passed;
}

OpSignature VarMean(std::vector<int64_t> sizes) {
  const std::vector<int64_t> kept(sizes.begin(), sizes.end() - 1);
  return Region({F32(sizes)}, "aten::var_mean.correction", {In(0), Json::array({-1})},
                {F32(kept), F32(kept)}, {{"correction", 1}, {"keepdim", false}});
}

TEST(OneSpecial, AMeanThatIsNanWithItsVarianceIsRefused) {
  const std::vector<std::vector<int64_t>> shapes = {{32, 1000}, {32, 1024}, {8, 4096}, {64, 33},
                                                    {4, 40000}, {128, 257}, {16, 16},  {2, 3, 500}};
  for (const std::vector<int64_t>& sizes : shapes) {
    const OpSignature signature = VarMean(sizes);
    for (uint64_t seed = 0; seed < 2; ++seed) {
      const auto checker = RegionChecker::Create(signature, 0, seed);
      ASSERT_TRUE(checker.ok()) << checker.status().ToString();
      const auto kernel = [](const at::Tensor& x, const at::Tensor& of_nan) {
        const auto [variance, mean] = at::var_mean(x, at::IntArrayRef({-1}));
        return std::vector{variance, at::where(variance.isnan(), of_nan, mean)};
      };
      const auto right = [&](const at::Tensor& x) { return kernel(x, x.mean(-1)); };
      const auto wrong = [&](const at::Tensor& x) {
        return kernel(x, at::full_like(x.select(-1, 0), kNoNumber));
      };
      EXPECT_EQ(Passed(signature, **checker, right), (*checker)->case_count()) << sizes;
      EXPECT_LT(Passed(signature, **checker, wrong), (*checker)->case_count()) << sizes;
    }
  }
}

// ATen's own mean is accepted as well, which is NaN where elements follow the infinity.
TEST(OneSpecial, AtensMeanIsAccepted) {
  const OpSignature signature = VarMean({32, 1000});
  const auto checker = Make(signature);
  const auto aten = [](const at::Tensor& x) {
    const auto [variance, mean] = at::var_mean(x, at::IntArrayRef({-1}));
    return std::vector{variance, mean};
  };
  EXPECT_EQ(Passed(signature, *checker, aten), checker->case_count());
}

// Few rows, in which the values of other sets are rare.
TEST(OneSpecial, AKernelThatLosesOneValueAtOnePlaceIsRefused) {
  constexpr int64_t kLength = 1000;
  const OpSignature signature =
      Region({F32({3, kLength})}, "aten::sum.dim_IntList", {In(0), Json::array({1}), false},
             {F32({3})}, {{"dtype", nullptr}});
  const auto checker = Make(signature);
  ASSERT_NE(checker, nullptr);
  for (const int64_t place : {int64_t{0}, kLength / 2 - 1, kLength / 2, kLength - 2, kLength - 1}) {
    for (const double value : {kInfinite, -kInfinite, kNoNumber}) {
      const auto loses = [&](const at::Tensor& x) {
        at::Tensor other = x.clone();
        const at::Tensor at_place = other.select(1, place);
        const at::Tensor hit = std::isnan(value) ? at_place.isnan() : at_place.eq(value);
        at_place.masked_fill_(hit, 0);
        return std::vector{other.sum(1)};
      };
      EXPECT_LT(Passed(signature, *checker, loses), checker->case_count()) << place << " " << value;
    }
  }
}

}  // namespace
}  // namespace cudaforge
