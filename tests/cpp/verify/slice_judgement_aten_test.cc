// Correct and wrong kernels, as plain loops, judged by float64 on slices.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/cpp/verify/drawn_aten.h"
#include "tests/cpp/verify/slice_regions_aten.h"
#include "verify/aten_slice_judgement.h"

namespace cudaforge {
namespace {

constexpr uint64_t kSeeds = 20;
using Kernel = std::function<at::Tensor(const std::vector<at::Tensor>&)>;
constexpr const char* kSets[] = {"normal", "uniform", "row_scales", "mixed", "special_rows"};

// The worst elements against ATen, as a screen would find them.
std::vector<int64_t> Suspects(const at::Tensor& candidate, const at::Tensor& aten) {
  const at::Tensor c = candidate.to(at::kDouble).reshape(-1), a = aten.to(at::kDouble).reshape(-1);
  const at::Tensor off = at::nan_to_num((c - a).abs(), 1e300, 1e300);
  std::vector<int64_t> worst;
  for (const at::Tensor& by : {off, at::nan_to_num(off / a.abs(), 0, 1e300)}) {
    const at::Tensor at = std::get<1>(by.topk(std::min<int64_t>(4, by.numel())));
    for (int64_t i = 0; i < at.numel(); ++i) worst.push_back(at[i].item<int64_t>());
  }
  return worst;
}

struct Judged {
  OpSignature region;
  std::unique_ptr<SliceJudgement> judgement;
  std::unique_ptr<RegionProgram> program;
  std::vector<std::vector<at::Tensor>> inputs, aten;
  std::vector<bool> typical;
  uint64_t seed;

  Judged(OpSignature signature, uint64_t from, const SliceLimits& limits = {})
      : region(std::move(signature)), typical(std::size(kSets)), seed(from) {
    auto made = SliceJudgement::Create(region, limits);
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    judgement = std::move(*made);
    program = std::move(*RegionProgram::Create(region));
    for (const char* name : kSets) {
      auto [drawn, answers] = Draw(name, seed);
      const auto number = judgement->Prepare(name, {drawn, answers}, seed);
      EXPECT_TRUE(number.ok()) << number.status().ToString();
      inputs.push_back(std::move(drawn));
      aten.push_back(std::move(answers));
    }
    judgement->Finish();
    EXPECT_TRUE(judgement->TryDecoys().ok()) << judgement->TryDecoys().ToString();
  }

  SliceVerdict Check(size_t set, const at::Tensor& output) {
    const ElementLists suspects = {Suspects(output, aten[set][0])};
    SliceVerdict told = judgement->Check(set, {inputs[set], aten[set]}, {&output, 1}, suspects);
    if (!told.more_sets_may_clear || typical[set]) return told;
    typical[set] = true;
    for (uint64_t more = 0; more < 8; ++more) {
      const auto [others, answers] = Draw(kSets[set], seed + 1000 * (more + 1));
      EXPECT_TRUE(judgement->AddTypical(set, {others, answers}, more).ok());
    }
    return judgement->Check(set, {inputs[set], aten[set]}, {&output, 1}, suspects);
  }
  std::pair<std::vector<at::Tensor>, std::vector<at::Tensor>> Draw(const char* name,
                                                                   uint64_t from) {
    std::vector<at::Tensor> drawn = DrawnTensors(region, name, seed, from);
    std::vector<at::Tensor> answers = program->RunStrided(drawn);
    return {std::move(drawn), std::move(answers)};
  }
  // The first verdict that is not "accepted", over all sets.
  Verdict Run(const Kernel& kernel) {
    for (size_t s = 0; s < inputs.size(); ++s) {
      const SliceVerdict result = Check(s, kernel(inputs[s]));
      if (!result.verdict.accepted()) return result.verdict;
    }
    return {};
  }
};

at::Tensor Rows(const at::Tensor& x, int64_t width,
                const std::function<void(const float*, float*, int64_t)>& row) {
  at::Tensor out = at::empty({x.size(0), width}, x.options());
  for (int64_t r = 0; r < x.size(0); ++r) {
    row(x.const_data_ptr<float>() + r * x.size(1), out.mutable_data_ptr<float>() + r * width,
        x.size(1));
  }
  return out;
}

float SumOf(const float* x, int64_t n, int lanes, const std::function<float(float)>& of) {
  std::vector<float> sums(static_cast<size_t>(lanes), 0);
  for (int64_t i = 0; i < n; ++i) sums[static_cast<size_t>(i % lanes)] += of(x[i]);
  float sum = 0;
  for (const float one : sums) sum += one;
  return sum;
}

float MostOf(const float* x, int64_t n) {
  float most = -INFINITY;
  for (int64_t i = 0; i < n; ++i) most = x[i] > most || std::isnan(x[i]) ? x[i] : most;
  return most;
}

// A softmax whose denominator is `sum`'s.
Kernel SoftmaxWith(std::function<float(const float*, int64_t, float)> sum) {
  return [sum](const std::vector<at::Tensor>& in) {
    return Rows(in[0], in[0].size(1), [&](const float* x, float* y, int64_t n) {
      const float most = MostOf(x, n);
      const float total = sum(x, n, most);
      for (int64_t i = 0; i < n; ++i) y[i] = std::exp(x[i] - most) / total;
    });
  };
}

Kernel SoftmaxOf(int lanes, int64_t dropped = 0) {
  return SoftmaxWith([=](const float* x, int64_t n, float most) {
    return SumOf(x, n - dropped, lanes, [&](float v) { return std::exp(v - most); });
  });
}

// In lanes with their own maximum and sum, which are combined at the end.
float OnlineSum(const float* x, int64_t n, float) {
  constexpr int64_t kLanes = 16;
  float most[kLanes], sums[kLanes] = {};
  const auto join = [](float x_most, float x_sum, float* to_most, float* to_sum) {
    const float now = x_most > *to_most || std::isnan(x_most) ? x_most : *to_most;
    *to_sum = *to_sum * std::exp(*to_most - now) + x_sum * std::exp(x_most - now);
    *to_most = now;
  };
  for (int64_t i = 0; i < n; ++i) {
    if (i < kLanes) most[i] = x[i];
    join(x[i], 1, &most[i % kLanes], &sums[i % kLanes]);
  }
  for (int64_t lane = 1; lane < kLanes; ++lane) join(most[lane], sums[lane], most, sums);
  return sums[0];
}

template <typename Half>
float HalfSum(const float* x, int64_t n, float most) {
  Half sum = 0;
  for (int64_t i = 0; i < n; ++i) sum = static_cast<Half>(sum + std::exp(x[i] - most));
  return static_cast<float>(sum);
}

OpSignature SoftmaxRegion(int64_t rows) {
  RegionBuilder b;
  const Json x = b.Input({rows, 4096});
  return b.Done({b.Call("_softmax", {x, 1, false}, {F32({rows, 4096})})});
}

TEST(SliceJudgement, DistinguishesWrongSoftmaxes) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SliceLimits limits;
    if (seed % 2 == 1) limits.aim = 1 << 16;  // slices
    Judged judged(SoftmaxRegion(6), seed, limits);
    for (const int lanes : {1, 16, 64}) {
      const Verdict verdict = judged.Run(SoftmaxOf(lanes));
      EXPECT_TRUE(verdict.accepted()) << seed << " " << lanes << ": " << verdict.message;
    }
    // Skips rows with an infinity, for which an online sum has NaN elsewhere.
    for (size_t s = 0; s + 1 < judged.inputs.size(); ++s) {
      const Verdict online = judged.Check(s, SoftmaxWith(OnlineSum)(judged.inputs[s])).verdict;
      EXPECT_TRUE(online.accepted()) << seed << ": " << online.message;
    }
    EXPECT_FALSE(judged.Run(SoftmaxOf(16, 1)).accepted()) << seed;
    EXPECT_FALSE(judged.Run(SoftmaxWith(HalfSum<c10::BFloat16>)).accepted()) << seed;
    EXPECT_FALSE(judged.Run(SoftmaxWith(HalfSum<c10::Half>)).accepted()) << seed;
  }
}

Kernel ProductWith(std::function<float(const float*, const float*, int64_t, int64_t)> dot) {
  return [dot](const std::vector<at::Tensor>& in) {
    const int64_t rows = in[0].size(0), inner = in[0].size(1), columns = in[1].size(1);
    at::Tensor out = at::empty({rows, columns}, in[0].options());
    const at::Tensor turned = in[1].t().contiguous();
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        out.mutable_data_ptr<float>()[r * columns + c] =
            dot(in[0].const_data_ptr<float>() + r * inner,
                turned.const_data_ptr<float>() + c * inner, inner, 1);
      }
    }
    return out;
  };
}

Kernel DotOf(int parts, bool fused, int64_t dropped = 0) {
  return ProductWith([=](const float* a, const float* b, int64_t n, int64_t) {
    float total = 0;
    for (int p = 0; p < parts; ++p) {
      float sum = 0;
      for (int64_t i = p * n / parts; i < (p + 1) * n / parts - (p == 0 ? dropped : 0); ++i) {
        sum = fused ? std::fma(a[i], b[i], sum) : sum + a[i] * b[i];
      }
      total += sum;
    }
    return total;
  });
}

// Numbers as sums of two separately scaled halves: a = h + l.
Kernel ThreeHalves() {
  return [](const std::vector<at::Tensor>& in) {
    auto high = [](const at::Tensor& t) { return t.to(at::kHalf).to(at::kFloat); };
    auto low = [&](const at::Tensor& t) {
      return (t - high(t)).mul(2048).to(at::kHalf).to(at::kFloat).div(2048);
    };
    return high(in[0]).mm(high(in[1])) + (high(in[0]).mm(low(in[1])) + low(in[0]).mm(high(in[1])));
  };
}

at::Tensor Tf32(const at::Tensor& t) {
  at::Tensor bits = t.clone().view(at::kInt);
  return bits.add(0x1000).bitwise_and(at::Scalar(~0x1fff)).view(at::kFloat);
}

TEST(SliceJudgement, DistinguishesWrongProducts) {
  RegionBuilder b;
  const Json x = b.Input({12, 4096}), w = b.Input({4096, 8});
  const OpSignature signature = b.Done({b.Call("mm", {x, w}, {F32({12, 8})})});
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SliceLimits limits;
    if (seed % 2 == 1) limits.aim = 1 << 16;
    Judged judged(signature, seed, limits);
    for (const int parts : {1, 4, 32}) {
      for (const bool fused : {false, true}) {
        const Verdict verdict = judged.Run(DotOf(parts, fused));
        EXPECT_TRUE(verdict.accepted()) << seed << " " << parts << ": " << verdict.message;
      }
    }
    const Verdict three = judged.Check(0, ThreeHalves()(judged.inputs[0])).verdict;
    EXPECT_TRUE(three.accepted()) << seed << ": " << three.message;
    EXPECT_FALSE(judged.Run(DotOf(4, false, 1)).accepted()) << seed;
    EXPECT_FALSE(
        judged.Run([](const std::vector<at::Tensor>& in) { return Tf32(in[0]).mm(Tf32(in[1])); })
            .accepted())
        << seed;
  }
}

TEST(SliceJudgement, JudgesSingleSums) {
  RegionBuilder b;
  const Json x = b.Input({16, 4096});
  const OpSignature signature =
      b.Done({b.Call("sum.dim_IntList", {x, L({1}), true}, {F32({16, 1})})});
  auto sum = [](int lanes, int64_t dropped) {
    return [=](const std::vector<at::Tensor>& in) {
      return Rows(in[0], 1, [&](const float* v, float* y, int64_t n) {
        *y = SumOf(v, n - dropped, lanes, [](float one) { return one; });
      });
    };
  };
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Judged judged(signature, seed);
    for (const int lanes : {1, 4, 16, 256}) {
      const Verdict verdict = judged.Run(sum(lanes, 0));
      EXPECT_TRUE(verdict.accepted()) << seed << " " << lanes << ": " << verdict.message;
    }
    EXPECT_FALSE(judged.Run(sum(16, 1)).accepted()) << seed;
  }
}

TEST(SliceJudgement, AcceptsCorrectResultsIfAtenIsWrong) {
  Judged judged(SoftmaxRegion(12), 3);
  const at::Tensor right = judged.aten[0][0].clone();
  judged.aten[0][0] = right.clone();
  judged.aten[0][0][5][7].fill_(0.5);
  SliceJudgement& judgement = *judged.judgement;
  const auto set = judgement.Prepare("ATen wrong", {judged.inputs[0], judged.aten[0]}, 3);
  ASSERT_TRUE(set.ok());
  judgement.Finish();
  const std::vector<int64_t> suspects = {5 * 4096 + 7};
  const SliceVerdict told =
      judgement.Check(*set, {judged.inputs[0], judged.aten[0]}, {&right, 1}, {suspects});
  EXPECT_TRUE(told.verdict.accepted()) << told.verdict.message;
  ASSERT_EQ(told.aten_wrong.size(), 1u);
  EXPECT_EQ(told.aten_wrong[0]["element"], Json::array({5, 7}));
  const Json found = judgement.Report()["cases"].back()["aten_wrong_elements"];
  ASSERT_EQ(found.size(), 1u) << judgement.Report();
  EXPECT_EQ(found[0]["element"], Json::array({5, 7}));
  EXPECT_EQ(found[0]["aten"], 0.5);
  const at::Tensor same = judged.aten[0][0].clone();
  EXPECT_TRUE(judgement.Check(*set, {judged.inputs[0], judged.aten[0]}, {&same, 1}, {suspects})
                  .verdict.accepted());
  const at::Tensor other = right.clone();
  other[5][7].fill_(0.25);
  const SliceVerdict wrong =
      judgement.Check(*set, {judged.inputs[0], judged.aten[0]}, {&other, 1}, {suspects});
  EXPECT_EQ(wrong.verdict.kind, VerdictKind::kWrongValues);
  EXPECT_EQ(wrong.verdict.evidence["element"], Json::array({5, 7}));
}

TEST(SliceJudgement, ReportsTooLargeOutputs) {
  RegionBuilder b;
  const Json x = b.Input({1 << 14, 1 << 14});
  const auto none = SliceJudgement::Create(
      b.Done({b.Call("cumsum", {b.Call("_unsafe_view", {x, L({1 << 28})}, {F32({1 << 28})}), 0},
                     {F32({1 << 28})})}));
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), StatusCode::kNoMemory);
}

}  // namespace
}  // namespace cudaforge
