// Correct kernels with other algorithms than ATen's are accepted, and similar wrong ones are
// refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/cpp/verify/tried_region_aten.h"

namespace cudaforge {
namespace {

float TreeOf(float (&parts)[16]) {
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) parts[i] += parts[i + half];
  }
  return parts[0];
}

// Float32 in sixteen lanes: the mean, the distances, the scale; a reciprocal instead of a division.
TEST(HonestKernels, OfLayerNormInLanes) {
  TriedRegion tried(Region({F32({12, 96}), F32({96}), F32({96})}, "aten::native_layer_norm",
                           {In(0), Json::array({96}), In(1), In(2), 1e-5},
                           {F32({12, 96}), F32({12, 1}), F32({12, 1})}));
  ASSERT_TRUE(tried.status().ok()) << tried.status().ToString();
  const Verdict verdict = tried.Try([](const std::vector<at::Tensor>& in) {
    at::Tensor y = at::empty({12, 96}), means = at::empty({12, 1}), rstds = at::empty({12, 1});
    const float* x = in[0].const_data_ptr<float>();
    const float *weight = in[1].const_data_ptr<float>(), *bias = in[2].const_data_ptr<float>();
    for (int64_t row = 0; row < 12; ++row, x += 96) {
      float parts[16] = {}, squares[16] = {};
      for (int64_t c = 0; c < 96; ++c) parts[c % 16] += x[c];
      const float mean = TreeOf(parts) * (1.0f / 96);
      for (int64_t c = 0; c < 96; ++c) squares[c % 16] += (x[c] - mean) * (x[c] - mean);
      const float rstd = 1 / std::sqrt(TreeOf(squares) * (1.0f / 96) + 1e-5f);
      for (int64_t c = 0; c < 96; ++c) {
        y.mutable_data_ptr<float>()[row * 96 + c] = (x[c] - mean) * rstd * weight[c] + bias[c];
      }
      means.mutable_data_ptr<float>()[row] = mean;
      rstds.mutable_data_ptr<float>()[row] = rstd;
    }
    return std::vector<at::Tensor>{y, means, rstds};
  });
  EXPECT_TRUE(verdict.accepted()) << verdict.message;
}

// Another order of addition changes the sign of sums near zero, and relu makes that zero or
// nonzero, in few elements.
TEST(HonestKernels, AddInAnotherOrderNearABend) {
  constexpr int64_t kRows = 384, kInner = 256;
  OpSignature signature = Region({F32({kRows, kInner}), F32({kInner, kRows})}, "aten::mm",
                                 {In(0), In(1)}, {F32({kRows, kRows})});
  signature.nodes.push_back(
      {"aten::relu", {Json{{"node", 0}, {"out", 0}}}, Json::object(), {F32({kRows, kRows})}});
  signature.outputs = {{1, 0}};
  for (uint64_t seed = 0; seed < 2; ++seed) {
    TriedRegion tried(signature, seed);
    ASSERT_TRUE(tried.status().ok()) << tried.status().ToString();
    for (size_t set = 0; set < tried.set_count(); ++set) {
      const std::vector<at::Tensor>& in = tried.Draw(set);
      at::Tensor sum = at::zeros({kRows, kRows});
      for (int64_t k = 0; k < kInner; k += 16) {
        sum += at::mm(in[0].slice(1, k, k + 16), in[1].slice(0, k, k + 16));
      }
      at::Tensor output = at::relu(sum);
      const Verdict verdict = tried.Check(set, {output});
      EXPECT_TRUE(verdict.accepted()) << "seed " << seed << ": " << verdict.message;
      // An error larger than rounding stays wrong, in one element or many.
      const float wrong = 1e-2F * sum.abs().nan_to_num(0, 1, 1).max().item<float>() + 1e-30F;
      const at::Tensor element = output.view(-1)[12'345];
      if (!std::isfinite(sum.view(-1)[12'345].item<float>())) continue;
      element.add_(wrong);
      EXPECT_FALSE(tried.Check(set, {output}).accepted())
          << tried.set_name(set) << " " << element.item<float>();
    }
  }
}

OpSignature VarianceAndMean(std::vector<int64_t> sizes) {
  const std::vector<int64_t> kept(sizes.begin(), sizes.end() - 1);
  return Region({F32(sizes)}, "aten::var_mean.correction", {In(0), Json::array({-1})},
                {F32(kept), F32(kept)}, {{"correction", 1}, {"keepdim", false}});
}

// A row with an infinity has a NaN variance and an infinite mean. ATen's mean may be NaN, which is
// accepted too.
TEST(HonestKernels, HaveAMeanIfTheVarianceIsNan) {
  const std::vector<std::vector<int64_t>> shapes = {{32, 1000}, {8, 4096}, {64, 33},
                                                    {4, 20000}, {16, 16},  {2, 3, 500}};
  for (const std::vector<int64_t>& sizes : shapes) {
    TriedRegion tried(VarianceAndMean(sizes));
    ASSERT_TRUE(tried.status().ok()) << tried.status().ToString();
    const auto kernel = [](const at::Tensor& x, const at::Tensor& of_nan) {
      const auto [variance, mean] = at::var_mean(x, at::IntArrayRef({-1}));
      return std::vector{variance, at::where(variance.isnan(), of_nan, mean)};
    };
    const Verdict right =
        tried.Try([&](const std::vector<at::Tensor>& in) { return kernel(in[0], in[0].mean(-1)); });
    EXPECT_TRUE(right.accepted()) << sizes << ": " << right.message;
    const Verdict wrong = tried.Try([&](const std::vector<at::Tensor>& in) {
      return kernel(in[0], at::full_like(in[0].select(-1, 0), NAN));
    });
    EXPECT_FALSE(wrong.accepted()) << sizes;
    const Verdict aten = tried.Try([](const std::vector<at::Tensor>& in) {
      const auto [variance, mean] = at::var_mean(in[0], at::IntArrayRef({-1}));
      return std::vector{variance, mean};
    });
    EXPECT_TRUE(aten.accepted()) << sizes << ": " << aten.message;
  }
}

// Sets drawn for one candidate in doubt widen the limits for later ones. They must not make a wrong
// one pass.
TEST(HonestKernels, CandidateInDoubtWidensLimitsSlightly) {
  for (const int64_t rows : {999, 5000}) {
    TriedRegion tried(Region({F32({rows, 64})}, "aten::sum.dim_IntList", {In(0), Json::array({1})},
                             {F32({rows})}));
    ASSERT_TRUE(tried.status().ok()) << tried.status().ToString();
    tried.Draw(0);
    const at::Tensor right = tried.Aten()[0].clone();
    const auto check = [&](int64_t row, double error) {
      at::Tensor values = right.clone();
      values[row] += error;
      return tried.Check(0, {values});
    };
    const auto limits = [&] {
      std::vector<double> of_rows;
      for (int64_t row = 0; row < 40; ++row) {
        of_rows.push_back(check(row, 1.0).evidence.at("limit").get<double>());
      }
      return of_rows;
    };
    const std::vector<double> before = limits();
    for (int64_t row = 0; row < 40; ++row) {
      check(row, 1.3 * before[static_cast<size_t>(row)]);
      EXPECT_FALSE(check(row, 4 * before[static_cast<size_t>(row)]).accepted()) << row;
    }
    const std::vector<double> after = limits();
    for (size_t row = 0; row < before.size(); ++row) EXPECT_LE(after[row], 3 * before[row]) << row;
  }
}

// The logarithm of a sum just above one errs by the rounding of that sum, which perturbing the
// terms does not show. More sets are needed if ATen's error on one set is small by luck.
TEST(HonestKernels, CandidateInDoubtIsJudgedOnMoreSets) {
  int tries = 0, cleared = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    TriedRegion tried(
        Region({F32({48, 64})}, "aten::_log_softmax", {In(0), -1, false}, {F32({48, 64})}), seed);
    ASSERT_TRUE(tried.status().ok()) << tried.status().ToString();
    for (size_t set = 0; set < tried.set_count(); ++set) {
      if (tried.set_name(set) != "mixed") continue;
      tried.Draw(set);
      const at::Tensor right = tried.Aten()[0].clone();
      for (int64_t at = 0; at < right.numel(); ++at) {
        const float value = right.const_data_ptr<float>()[at];
        if (!(value < 0 && value > -1e-4F)) continue;
        const auto check = [&](double error) {
          at::Tensor values = right.clone();
          values.view(-1)[at] += error;
          return tried.Check(set, {values});
        };
        const auto limit = [&] { return check(-1.0).evidence.at("limit").get<double>(); };
        ++tries;
        cleared += check(-1.5 * limit()).accepted();
        EXPECT_FALSE(check(-std::max(1e-6, 4 * limit())).accepted()) << value << " " << limit();
      }
    }
  }
  EXPECT_GT(tries, 4);
  EXPECT_GT(cleared, 0);
}

}  // namespace
}  // namespace cudaforge
