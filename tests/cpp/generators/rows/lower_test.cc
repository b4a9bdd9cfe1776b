#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "generators/generator.h"
#include "signature/op_facts.h"
#include "tests/cpp/generators/region.h"

namespace cudaforge::rows {
namespace {

// [2, 3, 4, 5] in several layouts.
std::vector<TensorSpec> Layouts() {
  const std::vector<int64_t> sizes = {2, 3, 4, 5};
  return {Spec(sizes), Spec(sizes, DType::kFloat32, {60, 1, 15, 3}),
          Spec(sizes, DType::kFloat32, {1, 2, 6, 24}), Spec(sizes, DType::kFloat32, {0, 5, 0, 1}),
          Spec(sizes, DType::kFloat32, {400, 40, 10, 2})};
}

double At(const Memory& x, int64_t a, int64_t b, int64_t c, int64_t d) {
  return x[static_cast<size_t>(((a * 3 + b) * 4 + c) * 5 + d)].f;
}

TEST(Lower, SumOverMiddleDimensionsInAnyLayout) {
  for (const TensorSpec& spec : Layouts()) {
    Region region;
    region.Call("sum.dim_IntList", {region.Input(spec), {1, -2}, false}, {Spec({2, 5})});
    const OpSignature signature = region.Signature();
    const std::vector<Memory> inputs = RandomInputs(signature);
    const Memory x = Logical(spec, inputs[0]);
    std::vector<double> want(10);
    for (int64_t i = 0; i < 120; ++i) want[i / 60 * 5 + i % 5] += x[i].f;
    ExpectNear(LowerAndRun(signature, inputs)[0], want);
  }
}

TEST(Lower, SoftmaxOverChannelsInAnyLayout) {
  for (const TensorSpec& spec : Layouts()) {
    Region region;
    region.Call("_softmax", {region.Input(spec), 1, false},
                {Spec({2, 3, 4, 5}, DType::kFloat32, {60, 1, 15, 3})});
    const OpSignature signature = region.Signature();
    const std::vector<Memory> inputs = RandomInputs(signature);
    const Memory x = Logical(spec, inputs[0]);
    std::vector<double> want;
    for (int64_t i = 0; i < 120; ++i) {
      double sum = 0;
      for (int64_t b = 0; b < 3; ++b) sum += std::exp(At(x, i / 60, b, i / 5 % 4, i % 5));
      want.push_back(std::exp(x[i].f) / sum);
    }
    ExpectNear(LowerAndRun(signature, inputs)[0], want);
  }
}

TEST(Lower, ChannelsLastCollapsesToRowsOfChannels) {
  Region region;
  const TensorSpec spec = Spec({2, 3, 4, 5}, DType::kFloat32, {60, 1, 15, 3});
  region.Call("_softmax", {region.Input(spec), 1, false}, {spec});
  const Program program = *Lower(region.Signature());
  EXPECT_EQ(program.stages[0].outer, (std::vector<int64_t>{40}));
  EXPECT_EQ(program.stages[0].inner, (std::vector<int64_t>{3}));
}

TEST(Lower, SpecialRows) {
  Region region;
  const Json x = region.Input(Spec({4, 3}));
  region.Output(region.Call("logsumexp", {x, {1}, false}, {Spec({4})}));
  region.Output(region.Call("amax", {x, {1}, false}, {Spec({4})}));
  region.Output(region.Call("_softmax", {x, 1, false}, {Spec({4, 3})}));
  region.Output(region.Call("argmax", {x, 1, false}, {Spec({4}, DType::kInt64)}));
  const std::vector<double> values = {-kInf, -kInf, -kInf, 1, kNan, kNan, 0, kInf, 1, -1.0, 2, 2};
  std::vector<Memory> inputs(1);
  for (double value : values) inputs[0].push_back({value, 0});
  const std::vector<Memory> got = LowerAndRun(region.Signature(), inputs);
  const double e = std::exp(-3.0);
  ExpectNear(got[0], {-kInf, kNan, kInf, 2 + std::log(2 + e)});
  ExpectNear(got[1], {-kInf, kNan, kInf, 2});
  ExpectNear(got[2], {kNan, kNan, kNan, kNan, kNan, kNan, kNan, kNan, kNan, e / (2 + e),
                      1 / (2 + e), 1 / (2 + e)});
  ExpectEqual(got[3], {0, 1, 1, 1});
}

TEST(Lower, AbsentGradientsAreLeftOut) {
  const auto backward = [](std::vector<bool> mask) {
    Region region;
    const Json grad = region.Input(Spec({2, 4, 3})), x = region.Input(Spec({2, 4, 3}));
    const Json mean = region.Input(Spec({2, 2})), rstd = region.Input(Spec({2, 2}));
    std::vector<TensorSpec> outputs = {Spec({2, 4, 3}), Spec({4}), Spec({4})};
    for (size_t k = 0; k < 3; ++k) {
      outputs[k].absent = !mask[k];
    }
    const int back = region.Call("native_group_norm_backward",
                                 {grad, x, mean, rstd, nullptr, 2, 4, 3, 2, mask}, outputs);
    for (int k = 0; k < 3; ++k) {
      if (mask[static_cast<size_t>(k)]) region.Output(back, k);
    }
    return region.Signature();
  };
  const OpSignature all = backward({true, true, true});
  const std::vector<Memory> in = RandomInputs(all);
  const std::vector<Memory> expected = LowerAndRun(all, in);
  for (const std::vector<bool>& mask :
       {std::vector<bool>{true, false, false}, {false, true, false}, {false, true, true}}) {
    const std::vector<Memory> got = LowerAndRun(backward(mask), in);
    size_t next = 0;
    for (size_t k = 0; k < 3; ++k) {
      if (!mask[k]) continue;
      ASSERT_LT(next, got.size());
      for (size_t i = 0; i < got[next].size(); ++i) EXPECT_EQ(got[next][i].f, expected[k][i].f);
      ++next;
    }
    EXPECT_EQ(next, got.size());
  }
}

TEST(Lower, LayerNormForwardAndBackward) {
  Region region;
  const Json x = region.Input(Spec({4, 6})), w = region.Input(Spec({6})),
             b = region.Input(Spec({6}));
  const Json grad = region.Input(Spec({4, 6}));
  const int norm = region.Call("native_layer_norm", {x, {6}, w, b, 1e-5},
                               {Spec({4, 6}), Spec({4, 1}), Spec({4, 1})});
  region.Output(norm);
  const int back = region.Call("native_layer_norm_backward",
                               {grad, x, {6}, Out(norm, 1), Out(norm, 2), w, b, {true, true, true}},
                               {Spec({4, 6}), Spec({6}), Spec({6})});
  for (int k = 0; k < 3; ++k) region.Output(back, k);
  const OpSignature signature = region.Signature();
  const std::vector<Memory> in = RandomInputs(signature);
  std::vector<double> y(24), dx(24), dw(6), db(6);
  for (size_t r = 0; r < 4; ++r) {
    double mean = 0, var = 0, along = 0, sum = 0;
    for (size_t c = 0; c < 6; ++c) mean += in[0][r * 6 + c].f / 6;
    for (size_t c = 0; c < 6; ++c) var += std::pow(in[0][r * 6 + c].f - mean, 2) / 6;
    const double rstd = 1 / std::sqrt(var + 1e-5);
    auto normal = [&](size_t c) { return (in[0][r * 6 + c].f - mean) * rstd; };
    auto gw = [&](size_t c) { return in[3][r * 6 + c].f * in[1][c].f; };
    for (size_t c = 0; c < 6; ++c) {
      along += gw(c) * normal(c) / 6;
      sum += gw(c) / 6;
    }
    for (size_t c = 0; c < 6; ++c) {
      y[r * 6 + c] = normal(c) * in[1][c].f + in[2][c].f;
      dx[r * 6 + c] = rstd * (gw(c) - sum - normal(c) * along);
      dw[c] += in[3][r * 6 + c].f * normal(c);
      db[c] += in[3][r * 6 + c].f;
    }
  }
  const std::vector<Memory> got = LowerAndRun(signature, in);
  ExpectNear(got[0], y);
  ExpectNear(got[1], dx);
  ExpectNear(got[2], dw);
  ExpectNear(got[3], db);
}

TEST(Lower, DecomposedRmsNormIsOneStage) {
  Region region;
  const Json x = region.Input(Spec({5, 8})), w = region.Input(Spec({8}));
  const int square = region.Call("pow.Tensor_Scalar", {x, 2}, {Spec({5, 8})});
  const int mean = region.Call("mean.dim", {Out(square), {-1}, true}, {Spec({5, 1})});
  const int eps = region.Call("add.Scalar", {Out(mean), 1e-6}, {Spec({5, 1})});
  const int rstd = region.Call("rsqrt", {Out(eps)}, {Spec({5, 1})});
  const int normal = region.Call("mul.Tensor", {x, Out(rstd)}, {Spec({5, 8})});
  region.Call("mul.Tensor", {Out(normal), w}, {Spec({5, 8})});
  const OpSignature signature = region.Signature();
  EXPECT_EQ(Lower(signature)->stages.size(), 1u);
  const std::vector<Memory> in = RandomInputs(signature);
  std::vector<double> want;
  for (size_t i = 0; i < 40; ++i) {
    double sum = 0;
    for (size_t c = 0; c < 8; ++c) sum += std::pow(in[0][i / 8 * 8 + c].f, 2);
    want.push_back(in[0][i].f / std::sqrt(sum / 8 + 1e-6) * in[1][i % 8].f);
  }
  ExpectNear(LowerAndRun(signature, in)[0], want);
}

TEST(Lower, GroupNorm) {
  Region region;
  const Json x = region.Input(Spec({2, 6, 5})), w = region.Input(Spec({6}));
  region.Call("native_group_norm", {x, w, nullptr, 2, 6, 5, 3, 1e-5},
              {Spec({2, 6, 5}), Spec({2, 3}), Spec({2, 3})});
  const OpSignature signature = region.Signature();
  const std::vector<Memory> in = RandomInputs(signature);
  std::vector<double> y(60);
  for (size_t g = 0; g < 6; ++g) {
    double mean = 0, var = 0;
    for (size_t k = 0; k < 10; ++k) mean += in[0][g * 10 + k].f / 10;
    for (size_t k = 0; k < 10; ++k) var += std::pow(in[0][g * 10 + k].f - mean, 2) / 10;
    for (size_t k = 0; k < 10; ++k) {
      y[g * 10 + k] =
          (in[0][g * 10 + k].f - mean) / std::sqrt(var + 1e-5) * in[1][(g * 10 + k) / 5 % 6].f;
    }
  }
  ExpectNear(LowerAndRun(signature, in)[0], y);
}

TEST(Lower, GroupNormForwardAndBackward) {
  Region region;  // 2 samples of 6 channels of 5 elements, in 3 groups of 2 channels
  const Json x = region.Input(Spec({2, 6, 5})), w = region.Input(Spec({6}));
  const Json b = region.Input(Spec({6})), grad = region.Input(Spec({2, 6, 5}));
  const int norm = region.Call("native_group_norm", {x, w, b, 2, 6, 5, 3, 1e-5},
                               {Spec({2, 6, 5}), Spec({2, 3}), Spec({2, 3})});
  region.Output(norm);
  const int back = region.Call(
      "native_group_norm_backward",
      {grad, x, Out(norm, 1), Out(norm, 2), w, 2, 6, 5, 3, std::vector<bool>{true, true, true}},
      {Spec({2, 6, 5}), Spec({6}), Spec({6})});
  for (int k = 0; k < 3; ++k) region.Output(back, k);
  const OpSignature signature = region.Signature();
  const std::vector<Memory> in = RandomInputs(signature);
  std::vector<double> y(60), dx(60), dw(6), db(6);
  for (size_t group = 0; group < 6; ++group) {  // its elements are 10 in a row
    const size_t first = group * 10;
    double mean = 0, var = 0, along = 0, sum = 0;
    for (size_t i = first; i < first + 10; ++i) mean += in[0][i].f / 10;
    for (size_t i = first; i < first + 10; ++i) var += std::pow(in[0][i].f - mean, 2) / 10;
    const double rstd = 1 / std::sqrt(var + 1e-5);
    auto normal = [&](size_t i) { return (in[0][i].f - mean) * rstd; };
    auto gw = [&](size_t i) { return in[3][i].f * in[1][i / 5 % 6].f; };
    for (size_t i = first; i < first + 10; ++i) {
      along += gw(i) * normal(i) / 10;
      sum += gw(i) / 10;
    }
    for (size_t i = first; i < first + 10; ++i) {
      const size_t channel = i / 5 % 6;
      y[i] = normal(i) * in[1][channel].f + in[2][channel].f;
      dx[i] = rstd * (gw(i) - sum - normal(i) * along);
      dw[channel] += in[3][i].f * normal(i);
      db[channel] += in[3][i].f;
    }
  }
  const std::vector<Memory> got = LowerAndRun(signature, in);
  ExpectNear(got[0], y);
  ExpectNear(got[1], dx);
  ExpectNear(got[2], dw);
  ExpectNear(got[3], db);
}

TEST(Lower, MaxPoolWithPaddingAndItsBackward) {
  Region region;
  const Json x = region.Input(Spec({2, 7, 6})), grad = region.Input(Spec({2, 4, 3}));
  const int pool =
      region.Call("max_pool2d_with_indices", {x, {3, 3}, {2, 2}, {1, 1}, {1, 1}, false},
                  {Spec({2, 4, 3}), Spec({2, 4, 3}, DType::kInt64)});
  region.Output(pool, 0);
  region.Output(pool, 1);
  region.Output(region.Call("max_pool2d_with_indices_backward",
                            {grad, x, {3, 3}, {2, 2}, {1, 1}, {1, 1}, false, Out(pool, 1)},
                            {Spec({2, 7, 6})}));
  const OpSignature signature = region.Signature();
  std::vector<Memory> in = RandomInputs(signature);
  for (size_t i = 0; i < 21; ++i) in[0][i].f = -kInf;
  in[0][50].f = in[0][51].f = kNan;
  std::vector<double> top, dx(84);
  std::vector<int64_t> index;
  for (int64_t o = 0; o < 24; ++o) {
    double best = -kInf;
    int64_t at = -1;
    for (int64_t k = 0; k < 9; ++k) {
      const int64_t h = o / 3 % 4 * 2 - 1 + k / 3, w = o % 3 * 2 - 1 + k % 3;
      if (h < 0 || h >= 7 || w < 0 || w >= 6) continue;
      const double value = in[0][static_cast<size_t>(o / 12 * 42 + h * 6 + w)].f;
      if (at >= 0 && !(value > best) && !std::isnan(value)) continue;
      best = value;
      at = h * 6 + w;
    }
    top.push_back(best);
    index.push_back(at);
    dx[static_cast<size_t>(o / 12 * 42 + at)] += in[1][static_cast<size_t>(o)].f;
  }
  const std::vector<Memory> got = LowerAndRun(signature, in);
  ExpectNear(got[0], top);
  ExpectEqual(got[1], index);
  ExpectNear(got[2], dx);
}

TEST(Lower, AveragePoolOfAChainExcludesPadding) {
  Region region;
  const int exp = region.Call("exp", {region.Input(Spec({2, 5}))}, {Spec({2, 5})});
  region.Call("avg_pool1d", {Out(exp), {3}, {2}, {1}, false, false}, {Spec({2, 3})});
  const OpSignature signature = region.Signature();
  const std::vector<Memory> in = RandomInputs(signature);
  std::vector<double> want;
  for (int64_t o = 0; o < 6; ++o) {
    double sum = 0, count = 0;
    for (int64_t w = std::max<int64_t>(o % 3 * 2 - 1, 0); w < std::min<int64_t>(o % 3 * 2 + 2, 5);
         ++w) {
      sum += std::exp(in[0][static_cast<size_t>(o / 3 * 5 + w)].f);
      count += 1;
    }
    want.push_back(sum / count);
  }
  ExpectNear(LowerAndRun(signature, in)[0], want);
}

TEST(Lower, CrossEntropyIsFusedWithItsSoftmax) {
  Region region;
  const Json x = region.Input(Spec({4, 5})), t = region.Input(Spec({4}, DType::kInt64));
  const Json w = region.Input(Spec({5}));
  const int log = region.Call("_log_softmax", {x, 1, false}, {Spec({4, 5})});
  region.Call("nll_loss_forward", {Out(log), t, w, 1, 2}, {Spec({}), Spec({})});
  const OpSignature signature = region.Signature();
  EXPECT_EQ(Lower(signature)->stages.size(), 2u);
  std::vector<Memory> in = RandomInputs(signature);
  in[1] = {{0, 4}, {0, 2}, {0, 0}, {0, 4}};
  double loss = 0, total = 0;
  for (size_t r : {0, 2, 3}) {
    double sum = 0;
    for (size_t c = 0; c < 5; ++c) sum += std::exp(in[0][r * 5 + c].f);
    const size_t target = static_cast<size_t>(in[1][r].i);
    loss -= (in[0][r * 5 + target].f - std::log(sum)) * in[2][target].f;
    total += in[2][target].f;
  }
  const std::vector<Memory> got = LowerAndRun(signature, in);
  ExpectNear(got[0], {loss / total});
  ExpectNear(got[1], {total});
}

TEST(Lower, ScanAndIntegers) {
  Region region;
  const Json x = region.Input(Spec({3, 4}, DType::kInt32));
  region.Output(region.Call("cumsum", {x, 0}, {Spec({3, 4}, DType::kInt64)}));
  region.Output(region.Call("sum", {x}, {Spec({}, DType::kInt64)}));
  const OpSignature signature = region.Signature();
  const std::vector<Memory> in = RandomInputs(signature);
  std::vector<int64_t> scan(12), sum(1);
  for (size_t i = 0; i < 12; ++i) {
    scan[i] = in[0][i].i + (i >= 4 ? scan[i - 4] : 0);
    sum[0] += in[0][i].i;
  }
  const std::vector<Memory> got = LowerAndRun(signature, in);
  ExpectEqual(got[0], scan);
  ExpectEqual(got[1], sum);
}

TEST(Lower, HalfResultsAreRoundedBeforeComparisons) {
  Region region;
  const Json x = region.Input(Spec({1}, DType::kFloat16));
  const int more = region.Call("add.Scalar", {x, 0.0001}, {Spec({1}, DType::kFloat16)});
  const int same = region.Call("eq.Tensor", {Out(more), x}, {Spec({1}, DType::kBool)});
  region.Call("all", {Out(same)}, {Spec({}, DType::kBool)});
  ExpectEqual(LowerAndRun(region.Signature(), {{{1.0, 0}}})[0], {1});
}

TEST(Lower, ReasonsNameTheNode) {
  auto message = [](const std::string& op, Json args, TensorSpec in, TensorSpec out) {
    Region region;
    if (args.is_null()) args = Json::array();
    args.insert(args.begin(), region.Input(std::move(in)));
    region.Call(op, std::move(args), {std::move(out)});
    return Lower(region.Signature()).status().ToString();
  };
  EXPECT_EQ(message("sort", {}, Spec({4}), Spec({4})), "unsupported: aten::sort has no lowering");
  EXPECT_NE(message("sum", {}, Spec({0}), Spec({})).find("empty"), std::string::npos);
  EXPECT_NE(message("exp", {}, Spec({4}), Spec({4})).find("no reduction"), std::string::npos);
  EXPECT_NE(message("amax", {{7}, false}, Spec({4}), Spec({})).find("aten::amax: dim"),
            std::string::npos);
  EXPECT_NE(
      message("mean", {}, Spec({4}, DType::kInt64), Spec({}, DType::kInt64)).find("aten::mean"),
      std::string::npos);
  EXPECT_NE(message("sum", {}, Spec({4}), Spec({3})).find("shape"), std::string::npos);
}

// Random chains of exact operations over broadcast operands, before and after a sum, against the
// same chain in plain C++.
TEST(Lower, RandomPointwiseChains) {
  const std::vector<std::vector<int64_t>> shapes = {{3, 7}, {7}, {1, 7}, {3, 1}, {}};
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    Region region;
    std::vector<TensorSpec> specs = {Spec(
        {3, 7}, DType::kFloat32, seed % 2 ? std::vector<int64_t>{1, 3} : std::vector<int64_t>{})};
    Json last = region.Input(specs[0]);
    std::vector<std::pair<int, int>> steps;  // operation, input
    for (int n = 0; n < 6; ++n) {
      const int op = static_cast<int>(random() % 5);
      int input = -1;
      Json args = {last};
      if (op < 4) {
        specs.push_back(Spec(shapes[random() % shapes.size()]));
        input = static_cast<int>(specs.size()) - 1;
        args.push_back(region.Input(specs.back()));
      }
      const char* names[] = {"add.Tensor", "mul.Tensor", "maximum", "sub.Tensor", "abs"};
      last = Out(region.Call(names[op], args, {Spec({3, 7})}));
      if (random() % 3 == 0) region.Output(n);
      steps.emplace_back(op, input);
    }
    const int sum = region.Call("sum.dim_IntList", {last, {static_cast<int>(seed % 2)}, true},
                                {seed % 2 ? Spec({3, 1}) : Spec({1, 7})});
    region.Output(region.Call("sub.Tensor", {last, Out(sum)}, {Spec({3, 7})}));
    const OpSignature signature = region.Signature();
    const std::vector<Memory> in = RandomInputs(signature);
    std::vector<std::vector<double>> values(1);
    for (const Num& x : Logical(specs[0], in[0])) values[0].push_back(x.f);
    for (const auto& [op, input] : steps) {
      std::vector<double> next;
      for (size_t i = 0; i < 21; ++i) {
        const double a = values.back()[i];
        double b = 0;
        if (input >= 0) {
          const std::vector<int64_t>& s = specs[static_cast<size_t>(input)].sizes;
          const size_t row = s.size() == 2 && s[0] == 3 ? i / 7 : 0;
          const size_t column = !s.empty() && s.back() == 7 ? i % 7 : 0;
          b = in[static_cast<size_t>(input)]
                [row * static_cast<size_t>(s.empty() ? 1 : s.back()) + column]
                    .f;
        }
        next.push_back(op == 0   ? a + b
                       : op == 1 ? a * b
                       : op == 2 ? std::max(a, b)
                       : op == 3 ? a - b
                                 : std::abs(a));
      }
      values.push_back(next);
    }
    std::vector<double> final;
    for (size_t i = 0; i < 21; ++i) {
      double total = 0;
      for (size_t j = 0; j < 21; ++j) {
        if (seed % 2 ? i / 7 == j / 7 : i % 7 == j % 7) total += values.back()[j];
      }
      final.push_back(values.back()[i] - total);
    }
    const std::vector<Memory> got = LowerAndRun(signature, in);
    for (size_t o = 0; o + 1 < got.size(); ++o) {
      ExpectNear(got[o], values[static_cast<size_t>(signature.outputs[o].node) + 1]);
    }
    ExpectNear(got.back(), final);
  }
}

TEST(Lower, IndicesOfRoundedValuesAreRefused) {
  const TensorSpec spec = Spec({4, 8});
  for (const bool places : {false, true}) {
    for (const char* op : {"exp", "neg"}) {
      Region region;
      const int before = region.Call(op, {region.Input(spec)}, {spec});
      const int best =
          region.Call("max.dim", {Out(before), 1, false}, {Spec({4}), Spec({4}, DType::kInt64)});
      region.Output(best, 0);
      if (places) region.Output(best, 1);
      EXPECT_EQ(Lower(region.Signature()).ok(), !places || std::string(op) == "neg") << op;
    }
  }
}

TEST(Lower, EveryLoweringHasFacts) {
  for (const std::string& op : AnchorOps()) {
    const OpKind kind = FactsOf(op).kind;
    EXPECT_TRUE(kind == OpKind::kReduces || kind == OpKind::kScans) << op;
    EXPECT_NE(FactsOf(op).family, OpFamily::kOther) << op;
  }
  for (const std::string& op : PointwiseOps()) {
    EXPECT_EQ(FactsOf(op).needs, OpNeeds::kItsPlace) << op;
    EXPECT_EQ(FactsOf(op).family, OpFamily::kOther) << op;
  }
}

TEST(Lower, LoadsHaveTheInputsAlignment) {
  Region region;
  TensorSpec spec = Spec({4, 100});
  spec.alignment = 4;
  const Json x = region.Input(spec);
  region.Call("_softmax", Json::array({x, -1, false}), {Spec({4, 100})});
  const Result<Program> program = Lower(region.Signature());
  ASSERT_TRUE(program.ok());
  for (const Stage& stage : program->stages) {
    for (const Value& value : stage.values) {
      if (value.kind == Value::Kind::kLoad) {
        EXPECT_EQ(value.alignment, 4);
      }
    }
  }
}

}  // namespace
}  // namespace cudaforge::rows
