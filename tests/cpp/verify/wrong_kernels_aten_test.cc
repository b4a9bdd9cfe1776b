// Kernels with one mistake each are refused on some set of their region. The correct one, which
// computes in float64 or is ATen's, passes on all.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/cpp/verify/tried_region_aten.h"

namespace cudaforge {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

struct NamedKernel {
  const char* name;
  TriedKernel kernel;
};

// A kernel of one input and one output.
TriedKernel One(std::function<at::Tensor(const at::Tensor&)> of) {
  return [of](const Tensors& in) { return Tensors{of(in[0])}; };
}

// Mistakes that are possible in any kernel.
std::vector<NamedKernel> AnyWrong(const TriedKernel& right) {
  const auto changed = [right](std::function<at::Tensor(const at::Tensor&)> change) {
    return [=](const Tensors& in) {
      Tensors out = right(in);
      out[0] = change(out[0].contiguous().clone());
      return out;
    };
  };
  const auto set_last = [](const at::Tensor& x, double value) {
    x.view(-1)[-1].fill_(value);
    return x;
  };
  return {{"zeros", changed([](const at::Tensor& x) { return x.zero_(); })},
          {"the other sign", changed([](const at::Tensor& x) { return x.neg_(); })},
          {"the last element is 0", changed([=](const at::Tensor& x) { return set_last(x, 0); })},
          {"the last element is 7", changed([=](const at::Tensor& x) { return set_last(x, 7); })},
          {"rows shifted by one", changed([](const at::Tensor& x) { return x.roll(1, 0); })},
          {"the first row for all",
           changed([](const at::Tensor& x) { return x.slice(0, 0, 1).expand(x.sizes()); })}};
}

void ExpectRefused(const OpSignature& region, const TriedKernel& right,
                   std::vector<NamedKernel> wrong) {
  TriedRegion tried(region);
  ASSERT_TRUE(tried.status().ok()) << tried.status().ToString();
  const Verdict verdict = tried.Try(right);
  EXPECT_TRUE(verdict.accepted()) << verdict.message;
  for (NamedKernel& one : AnyWrong(right)) wrong.push_back(std::move(one));
  for (const NamedKernel& one : wrong) {
    EXPECT_EQ(tried.Try(one.kernel).kind, VerdictKind::kWrongValues) << one.name;
  }
}

at::Tensor LessPrecise(const at::Tensor& x) { return x.to(at::kBFloat16).to(at::kFloat); }

TEST(WrongKernels, OfSoftmax) {
  const auto by_steps = [](const at::Tensor& x, const at::Tensor& top, int64_t left_out) {
    const at::Tensor terms = (x - top).exp();
    return terms / terms.slice(1, 0, x.size(1) - left_out).sum(1, true);
  };
  const auto of_double = [](const at::Tensor& x) { return x.to(at::kDouble).softmax(1); };
  ExpectRefused(
      Region({F32({24, 200})}, "aten::_softmax", {In(0), 1, false}, {F32({24, 200})}),
      One(of_double),
      {{"no maximum", One([=](const at::Tensor& x) { return by_steps(x, at::zeros({1}), 0); })},
       {"a maximum of at least 0",
        One([=](const at::Tensor& x) { return by_steps(x, x.amax(1, true).clamp_min(0), 0); })},
       {"the last is not in the sum",
        One([=](const at::Tensor& x) { return by_steps(x, x.amax(1, true), 1); })},
       {"NaN is left out",
        One([=](const at::Tensor& x) { return of_double(x.nan_to_num(-kInfinite, kInfinite)); })},
       {"of inputs in bfloat16",
        One([=](const at::Tensor& x) { return of_double(LessPrecise(x)); })},
       {"along the other axis", One([](const at::Tensor& x) { return x.softmax(0); })}});
}

TEST(WrongKernels, OfLayerNorm) {
  const auto norm = [](const Tensors& in, int64_t less, double eps, bool one_pass) {
    const at::Tensor x = in[0].to(one_pass ? at::kFloat : at::kDouble);
    const at::Tensor mean = x.mean(1, true);
    const at::Tensor squares =
        one_pass ? x.square().sum(1, true) - 96 * mean.square() : (x - mean).square().sum(1, true);
    const at::Tensor rstd = (squares / (96 - less) + eps).rsqrt();
    return Tensors{(x - mean) * rstd * in[1] + in[2], mean, rstd};
  };
  const auto right = [=](const Tensors& in) { return norm(in, 0, 1e-5, false); };
  const auto with = [right](size_t o, std::function<at::Tensor(const Tensors&)> value) {
    return [=](const Tensors& in) {
      Tensors out = right(in);
      out[o] = value(in);
      return out;
    };
  };
  const auto without = [right](size_t input, double instead) {
    return [=](Tensors in) {
      in[input] = at::full_like(in[input], instead);
      return right(in);
    };
  };
  ExpectRefused(Region({F32({12, 96}), F32({96}), F32({96})}, "aten::native_layer_norm",
                       {In(0), Json::array({96}), In(1), In(2), 1e-5},
                       {F32({12, 96}), F32({12, 1}), F32({12, 1})}),
                right,
                {{"divided by n - 1", [=](const Tensors& in) { return norm(in, 1, 1e-5, false); }},
                 {"no epsilon", [=](const Tensors& in) { return norm(in, 0, 0, false); }},
                 {"in one pass", [=](const Tensors& in) { return norm(in, 0, 1e-5, true); }},
                 {"no weight", without(1, 1)},
                 {"no bias", without(2, 0)},
                 {"no mean", with(1,
                                  [](const Tensors& in) {
                                    return at::zeros({in[0].size(0), 1});
                                  })},
                 {"the deviation, not its reciprocal",
                  with(2, [right](const Tensors& in) { return right(in)[2].reciprocal(); })}});
}

TEST(WrongKernels, OfArgmax) {
  const auto of = [](const at::Tensor& x) { return x.argmax(1); };
  ExpectRefused(
      Region({F32({24, 100})}, "aten::argmax", {In(0), 1, false}, {Spec(DType::kInt64, {24})}),
      One(of),
      {{"the last of equals", One([=](const at::Tensor& x) { return 99 - of(x.flip(1)); })},
       {"NaN is left out",
        One([=](const at::Tensor& x) { return of(x.nan_to_num(-kInfinite, kInfinite)); })},
       {"from -1e30", One([=](const at::Tensor& x) { return of(x.clamp_min(-1e30)); })},
       {"without the last", One([=](const at::Tensor& x) { return of(x.slice(1, 0, 99)); })},
       {"without the first", One([=](const at::Tensor& x) { return of(x.slice(1, 1)) + 1; })},
       {"the smallest", One([](const at::Tensor& x) { return x.argmin(1); })}});
}

TEST(WrongKernels, OfSort) {
  const auto sorted = [](const at::Tensor& x) {
    const auto [values, places] = x.sort(/*stable=*/true, 1, /*descending=*/false);
    return Tensors{values, places};
  };
  const auto right = [=](const Tensors& in) { return sorted(in[0]); };
  ExpectRefused(
      Region({F32({24, 100})}, "aten::sort.stable", Json::array({In(0)}),
             {F32({24, 100}), Spec(DType::kInt64, {24, 100})},
             {{"stable", true}, {"dim", 1}, {"descending", false}}),
      right,
      {{"descending",
        [=](const Tensors& in) {
          const Tensors out = sorted(in[0]);
          return Tensors{out[0].flip(1), out[1].flip(1)};
        }},
       {"all but the last",
        [=](const Tensors& in) {
          const Tensors out = sorted(in[0].slice(1, 0, 99));
          return Tensors{at::cat({out[0], in[0].slice(1, 99)}, 1),
                         at::cat({out[1], at::full({24, 1}, 99, at::kLong)}, 1)};
        }},
       {"NaN first",
        [=](const Tensors& in) { return sorted(at::where(in[0].isnan(), -kInfinite, in[0])); }},
       {"places of another row", [=](const Tensors& in) {
          const Tensors out = sorted(in[0]);
          return Tensors{out[0], out[1].roll(1, 0)};
        }}});
}

// A row of n elements to one number, including insufficient precision.
TEST(WrongKernels, OfSums) {
  for (const int64_t rows : {2, 24}) {
    SCOPED_TRACE(rows);
    const auto lanes = [rows](const at::Tensor& x) { return x.view({rows, 32, 64}).sum(1).sum(1); };
    const auto loses = [](const at::Tensor& x, int64_t place) {
      at::Tensor other = x.clone();
      other.select(1, place).nan_to_num_(0, 0, 0);
      return other;
    };
    const auto off = [=](const at::Tensor& x) {
      at::Tensor sums = lanes(x);
      sums[rows - 1] *= 1.0001;
      return sums;
    };
    ExpectRefused(
        Region({F32({rows, 2048})}, "aten::sum.dim_IntList", {In(0), Json::array({1}), false},
               {F32({rows})}, {{"dtype", nullptr}}),
        One(lanes),
        {{"of inputs in bfloat16", One([](const at::Tensor& x) { return LessPrecise(x).sum(1); })},
         {"in bfloat16", One([](const at::Tensor& x) { return x.to(at::kBFloat16).sum(1); })},
         {"without the last", One([](const at::Tensor& x) { return x.slice(1, 0, 2047).sum(1); })},
         {"one row off by 1e-4", One(off)},
         {"no NaN or infinity at the first place",
          One([=](const at::Tensor& x) { return lanes(loses(x, 0)); })},
         {"no NaN or infinity in the middle",
          One([=](const at::Tensor& x) { return lanes(loses(x, 1024)); })},
         {"no NaN or infinity at the last place",
          One([=](const at::Tensor& x) { return lanes(loses(x, 2047)); })},
         {"infinity is the largest number",
          One([=](const at::Tensor& x) { return lanes(x.nan_to_num(kNoNumber)); })}});
  }
}

TEST(WrongKernels, OfScans) {
  const auto of = [](const at::Tensor& x) { return x.to(at::kDouble).cumsum(1); };
  ExpectRefused(
      Region({F32({24, 300})}, "aten::cumsum", {In(0), 1}, {F32({24, 300})}, {{"dtype", nullptr}}),
      One(of),
      {{"without its own", One([=](const at::Tensor& x) { return of(x) - x; })},
       {"anew after 256", One([=](const at::Tensor& x) {
          return at::cat({of(x.slice(1, 0, 256)), of(x.slice(1, 256))}, 1);
        })},
       {"from behind", One([=](const at::Tensor& x) { return of(x.flip(1)).flip(1); })}});
}

TEST(WrongKernels, OfProducts) {
  const auto of = [](const at::Tensor& a, const at::Tensor& b) {
    return Tensors{at::mm(a.to(at::kDouble), b.to(at::kDouble))};
  };
  ExpectRefused(
      Region({F32({48, 96}), F32({96, 48})}, "aten::mm", {In(0), In(1)}, {F32({48, 48})}),
      [=](const Tensors& in) { return of(in[0], in[1]); },
      {{"of inputs in bfloat16",
        [=](const Tensors& in) { return of(LessPrecise(in[0]), LessPrecise(in[1])); }},
       {"without the last",
        [=](const Tensors& in) { return of(in[0].slice(1, 0, 95), in[1].slice(0, 0, 95)); }},
       {"of the transposed",
        [=](const Tensors& in) {
          return of(in[0], in[1].view({48, 96}).t());
        }},
       {"NaN times 0 is 0",
        [=](const Tensors& in) { return of(in[0].nan_to_num(0, kInfinite, -kInfinite), in[1]); }},
       {"an infinity is the largest number",
        [=](const Tensors& in) { return of(in[0], in[1].nan_to_num(kNoNumber)); }}});
}

TEST(WrongKernels, OfEmbedding) {
  const auto of = [](const at::Tensor& table, const at::Tensor& rows) {
    return Tensors{table.index_select(0, rows)};
  };
  ExpectRefused(
      Region({F32({50, 8}), Spec(DType::kInt64, {40})}, "aten::embedding",
             {In(0), In(1), -1, false, false}, {F32({40, 8})}),
      [=](const Tensors& in) { return of(in[0], in[1]); },
      {{"the next row", [=](const Tensors& in) { return of(in[0], (in[1] + 1).clamp_max(49)); }},
       {"not the last row", [=](const Tensors& in) { return of(in[0], in[1].clamp_max(48)); }},
       {"row 0 is padding",
        [=](const Tensors& in) { return Tensors{of(in[0], in[1])[0] * in[1].ne(0).unsqueeze(1)}; }},
       {"less precise", [=](const Tensors& in) { return of(LessPrecise(in[0]), in[1]); }},
       {"no denormals", [=](const Tensors& in) {
          return of(at::where(in[0].abs().lt(0x1p-126), 0, in[0]), in[1]);
        }}});
}

TEST(WrongKernels, OfPooling) {
  const Json two = Json::array({2, 2}), one = Json::array({1, 1});
  const at::Tensor none;
  const auto largest = [](const at::Tensor& x) {
    const auto [values, places] = at::max_pool2d_with_indices(x, {2, 2}, {2, 2}, {1, 1});
    return Tensors{values, places};
  };
  ExpectRefused(
      Region({F32({2, 3, 8, 8})}, "aten::max_pool2d_with_indices",
             {In(0), two, two, one, one, false},
             {F32({2, 3, 5, 5}), Spec(DType::kInt64, {2, 3, 5, 5})}),
      [=](const Tensors& in) { return largest(in[0]); },
      {{"0 around it",
        [=](const Tensors& in) {
          return Tensors{std::get<0>(at::max_pool2d_with_indices(
                             at::constant_pad_nd(in[0], {1, 1, 1, 1}), {2, 2}, {2, 2})),
                         largest(in[0])[1]};
        }},
       {"NaN is left out",
        [=](const Tensors& in) { return largest(in[0].nan_to_num(-kInfinite, kInfinite)); }},
       {"from -1e30",
        [=](const Tensors& in) {
          return Tensors{largest(in[0])[0].clamp_min(-1e30), largest(in[0])[1]};
        }},
       {"places by columns",
        [=](const Tensors& in) {
          const Tensors out = largest(in[0]);
          return Tensors{out[0], out[1] % 8 * 8 + at::div(out[1], 8, "floor")};
        }},
       {"the last of equals", [=](const Tensors& in) {
          const Tensors out = largest(in[0].flip({2, 3}));
          return Tensors{largest(in[0])[0], 63 - out[1].flip({2, 3})};
        }}});
  const auto mean = [](const at::Tensor& x, bool padding) {
    return at::avg_pool2d(x.to(at::kDouble), {2, 2}, {2, 2}, {1, 1}, false, padding);
  };
  ExpectRefused(
      Region({F32({2, 3, 8, 8})}, "aten::avg_pool2d", {In(0), two, two, one, false, true, nullptr},
             {F32({2, 3, 5, 5})}),
      One([=](const at::Tensor& x) { return mean(x, true); }),
      {{"padding does not count", One([=](const at::Tensor& x) { return mean(x, false); })},
       {"of inputs in bfloat16",
        One([=](const at::Tensor& x) { return mean(LessPrecise(x), true); })}});
}

// The gradient of a global average is one value per row, so the decoy "rows of one value" is
// correct there. It is compared with that value.
TEST(WrongKernels, OfTheGradientOfAGlobalAverage) {
  const Json four = Json::array({4, 4});
  TriedRegion tried(Region({F32({1, 1, 1, 1}), F32({1, 1, 4, 4})}, "aten::avg_pool2d_backward",
                           {In(0), In(1), four, four, Json::array({0, 0}), false, true, nullptr},
                           {F32({1, 1, 4, 4})}));
  ASSERT_TRUE(tried.status().ok()) << tried.status().ToString();
  for (size_t set = 0; set < tried.set_count(); ++set) {
    const at::Tensor grad = tried.Draw(set)[0].clone();
    const at::Tensor right = (grad / 16).expand({1, 1, 4, 4});
    EXPECT_TRUE(tried.Check(set, {right}).accepted());
    const float value = grad.item<float>();
    if (!std::isfinite(value) || std::fabs(value) < 1e-3F) continue;
    at::Tensor one_wrong = right.clone();
    one_wrong[0][0][3][3] *= 1.001;
    for (const at::Tensor& wrong : {(grad / 15).expand({1, 1, 4, 4}), one_wrong}) {
      EXPECT_FALSE(tried.Check(set, {wrong}).accepted()) << tried.set_name(set);
    }
  }
}

TEST(WrongKernels, OfAnyAndAll) {
  struct OneCase {
    std::string op;
    Json args;
    std::vector<int64_t> dims, out;
  };
  const std::vector<OneCase> cases = {
      {"any.dim", {In(0), 2, false}, {2}, {5, 6}},
      {"any.dim", {In(0), 0, false}, {0}, {6, 40}},
      {"any.dims", {In(0), Json::array({0, 2}), false}, {0, 2}, {6}},
      {"any", Json::array({In(0)}), {0, 1, 2}, {}},
      {"all.dim", {In(0), -1, false}, {2}, {5, 6}},
      {"all", Json::array({In(0)}), {0, 1, 2}, {}}};
  for (const OneCase& one : cases) {
    const bool all = one.op.starts_with("all");
    // Leaves out elements of each group, as a loop with a wrong end does.
    const auto truths = [&](int64_t begin, int64_t left_out) {
      return One([=, &one](const at::Tensor& x) {
        std::vector<int64_t> order;
        for (int64_t d = 0; d < x.dim(); ++d) {
          if (std::find(one.dims.begin(), one.dims.end(), d) == one.dims.end()) order.push_back(d);
        }
        const auto kept = static_cast<int64_t>(order.size());
        order.insert(order.end(), one.dims.begin(), one.dims.end());
        const at::Tensor bits = x.to(at::kDouble).ne(0).permute(order).flatten(kept);
        const at::Tensor part = bits.slice(-1, begin, bits.size(-1) - left_out);
        return all ? part.all(-1) : part.any(-1);
      });
    };
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt64, DType::kBool}) {
      SCOPED_TRACE(one.op + " " + std::string(DTypeName(dtype)));
      TriedRegion tried(Region({Spec(dtype, {5, 6, 40})}, "aten::" + one.op, one.args,
                               {Spec(DType::kBool, one.out)}));
      ASSERT_TRUE(tried.status().ok()) << tried.status().ToString();
      const TriedKernel constant =
          One([&](const at::Tensor&) { return at::full(one.out, !all, at::kBool); });
      EXPECT_TRUE(tried.Try(truths(0, 0)).accepted());
      EXPECT_FALSE(tried.Try(truths(0, 1)).accepted()) << "without the last";
      EXPECT_FALSE(tried.Try(truths(1, 0)).accepted()) << "without the first";
      EXPECT_FALSE(tried.Try(constant).accepted()) << "always the same";
    }
  }
}

}  // namespace
}  // namespace cudaforge
