#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/cpp/verify/region_aten.h"
#include "verify/elements.h"

namespace cudaforge {
namespace {

OpSignature AvgPoolBackward(int64_t in, int64_t kernel) {
  const Json square = Json::array({kernel, kernel});
  const int64_t out = in / kernel;
  return Region({F32({1, 1, out, out}), F32({1, 1, in, in})}, "aten::avg_pool2d_backward",
                {In(0), In(1), square, square, Json::array({0, 0}), false, true, nullptr},
                {F32({1, 1, in, in})});
}

OpSignature Truth(const std::string& op, DType dtype, Json args, std::vector<int64_t> out) {
  return Region({Spec(dtype, {5, 6, 40})}, op, std::move(args), {Spec(DType::kBool, out)});
}

// The region's own program in ATen must be accepted in every case; returns the number of cases.
size_t ExpectAtenPasses(const OpSignature& signature) {
  const auto checker = Make(signature);
  if (checker == nullptr) return 0;
  const auto program = RegionProgram::Create(signature);
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  for (size_t i = 0; i < checker->case_count(); ++i) {
    std::vector<std::string> outputs;
    for (const at::Tensor& t : (*program)->RunStrided(Tensors(signature, checker->inputs(i)))) {
      outputs.push_back(BytesOf(t));
    }
    const Verdict verdict = checker->Check(i, outputs);
    EXPECT_TRUE(verdict.accepted()) << signature.Describe() << ": " << verdict.message;
    outputs.pop_back();
    EXPECT_EQ(checker->Check(i, outputs).kind, VerdictKind::kWrongShape);
  }
  return checker->case_count();
}

OpSignature LayerNorm() {
  return Region({F32({12, 96}), F32({96}), F32({96})}, "aten::native_layer_norm",
                {In(0), Json::array({96}), In(1), In(2), 1e-5},
                {F32({12, 96}), F32({12, 1}), F32({12, 1})});
}

TEST(Checker, ManyRegionsAcceptAten) {
  const Json yes3 = Json::array({true, true, true});
  const std::vector<OpSignature> regions = {
      LayerNorm(),
      Region({F32({12, 96}), F32({12, 96}), F32({12, 1}), F32({12, 1}), F32({96}), F32({96})},
             "aten::native_layer_norm_backward",
             {In(0), In(1), Json::array({96}), In(2), In(3), In(4), In(5), yes3},
             {F32({12, 96}), F32({96}), F32({96})}),
      Region({F32({12, 96}), F32({12, 96}), F32({12, 1}), F32({12, 1}), F32({96}), F32({96})},
             "aten::native_layer_norm_backward",
             {In(0), In(1), Json::array({96}), In(2), In(3), In(4), In(5),
              Json::array({false, true, false})},
             {Absent(), F32({96}), Absent()}),
      Region({F32({3, 8, 20}), F32({3, 8, 20}), F32({3, 4}), F32({3, 4}), F32({8})},
             "aten::native_group_norm_backward",
             {In(0), In(1), In(2), In(3), In(4), 3, 8, 20, 4, Json::array({true, false, false})},
             {F32({3, 8, 20}), Absent(), Absent()}),
      AvgPoolBackward(4, 2),
      AvgPoolBackward(4, 4),  // every row is one value
      AvgPoolBackward(5, 2),  // the last row gets no gradient
      Region({F32({9, 130}, {260, 2})}, "aten::_log_softmax", {In(0), -1, false}, {F32({9, 130})}),
      Region({F32({9, 40}), F32({9, 40})}, "aten::_softmax_backward_data",
             {In(0), In(1), 1, {{"dtype", "float32"}}}, {F32({9, 40})}),
      Region({F32({64, 10}), Spec(DType::kInt64, {64})}, "aten::nll_loss_forward",
             {In(0), In(1), nullptr, 1, -100}, {F32({}), F32({})}),
      Region({F32({}), F32({64, 10}), Spec(DType::kInt64, {64}), F32({})},
             "aten::nll_loss_backward", {In(0), In(1), In(2), nullptr, 1, -100, In(3)},
             {F32({64, 10})}),
      Region({F32({2, 3, 8, 8})}, "aten::max_pool2d_with_indices",
             {In(0), Json::array({2, 2}), Json::array({2, 2}), Json::array({0, 0}),
              Json::array({1, 1}), false},
             {F32({2, 3, 4, 4}), Spec(DType::kInt64, {2, 3, 4, 4})}),
      Region({F32({2, 3, 4, 4}), F32({2, 3, 8, 8}), Spec(DType::kInt64, {2, 3, 4, 4})},
             "aten::max_pool2d_with_indices_backward",
             {In(0), In(1), Json::array({2, 2}), Json::array({2, 2}), Json::array({0, 0}),
              Json::array({1, 1}), false, In(2)},
             {F32({2, 3, 8, 8})}),
      Region({Spec(DType::kInt32, {7, 33})}, "aten::sum.dim_IntList",
             {In(0), Json::array({1}), false}, {Spec(DType::kInt64, {7})}, {{"dtype", nullptr}}),
      Region({F32({8, 50})}, "aten::argmax", {In(0), 1, false}, {Spec(DType::kInt64, {8})}),
      Region({Spec(DType::kBFloat16, {8, 50})}, "aten::cumsum", {In(0), 1},
             {Spec(DType::kBFloat16, {8, 50})}, {{"dtype", nullptr}}),
      Region({F32({8, 50}, {0, 1}), F32({8, 50})}, "aten::mul.Tensor", {In(0), In(1)},
             {F32({8, 50})}),
      Region({Spec(DType::kFloat64, {8, 50})}, "aten::_softmax", {In(0), 1, false},
             {Spec(DType::kFloat64, {8, 50})}),
      Region({F32({8, 50})}, "aten::relu", Json::array({In(0)}), {F32({8, 50})}),
      Region({F32({1000})}, "aten::mean", Json::array({In(0)}), {F32({})}, {{"dtype", nullptr}})};
  for (const OpSignature& region : regions)
    EXPECT_GE(ExpectAtenPasses(region), 4u) << region.Describe();
}

// What any() or all() of a set's input gives; with the last or the first element of each group left
// out, what a loop that misses it gives.
std::string Truths(const OpSignature& signature, const InputSet& set,
                   const std::vector<int64_t>& dims, bool all, bool without_last,
                   bool without_first) {
  at::Tensor x = Tensors(signature, set)[0].to(at::kDouble).ne(0);
  std::vector<int64_t> order;
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) order.push_back(d);
  }
  const auto kept = static_cast<int64_t>(order.size());
  order.insert(order.end(), dims.begin(), dims.end());
  x = x.permute(order).flatten(kept);
  x = x.slice(-1, without_first ? 1 : 0, x.size(-1) - (without_last ? 1 : 0));
  return BytesOf(all ? x.all(-1) : x.any(-1));
}

TEST(Checker, AnyAndAllAreToldFromConstantsAndFromLoopsThatMissAnEnd) {
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
    for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt64, DType::kBool}) {
      SCOPED_TRACE(one.op + " " + std::string(DTypeName(dtype)));
      const OpSignature signature = Truth("aten::" + one.op, dtype, one.args, one.out);
      const auto checker = Make(signature);
      ASSERT_NE(checker, nullptr);
      int passed[4] = {};  // right, always the same, without the last element, without the first
      for (size_t i = 0; i < checker->case_count(); ++i) {
        const InputSet& set = checker->inputs(i);
        const std::string tries[] = {
            Truths(signature, set, one.dims, all, false, false),
            std::string(static_cast<size_t>(signature.output_spec(0).numel()), all ? '\0' : '\1'),
            Truths(signature, set, one.dims, all, true, false),
            Truths(signature, set, one.dims, all, false, true)};
        for (size_t t = 0; t < 4; ++t) {
          passed[t] += checker->Check(i, std::span(&tries[t], 1)).accepted() ? 1 : 0;
        }
      }
      const auto every = static_cast<int>(checker->case_count());
      EXPECT_EQ(passed[0], every);
      for (size_t t = 1; t < 4; ++t) EXPECT_LT(passed[t], every) << "wrong kernel " << t;
    }
  }
}

TEST(Checker, GradientOfAWholePlanesAverageIsHeldToItsValue) {
  const OpSignature signature = AvgPoolBackward(4, 4);
  const auto checker = Make(signature);
  ASSERT_NE(checker, nullptr);
  for (size_t i = 0; i < checker->case_count(); ++i) {
    const at::Tensor grad = Tensors(signature, checker->inputs(i))[0];
    const std::string right = BytesOf((grad / 16).expand({1, 1, 4, 4}));
    EXPECT_TRUE(checker->Check(i, std::span(&right, 1)).accepted());
    at::Tensor one_wrong = (grad / 16).expand({1, 1, 4, 4}).clone();
    one_wrong[0][0][3][3] = one_wrong[0][0][3][3] * 1.001;
    const float value = grad.item<float>();
    if (!std::isfinite(value) || std::fabs(value) < 1e-3f) continue;
    for (const at::Tensor& wrong : {(grad / 15).expand({1, 1, 4, 4}), one_wrong}) {
      const std::string bytes = BytesOf(wrong);
      EXPECT_FALSE(checker->Check(i, std::span(&bytes, 1)).accepted());
    }
  }
}

// Wrong only in precision, or in one element: the sum of rows, few of them.
TEST(Checker, FewOutputsAreJudgedByMoreOfAtensErrors) {
  for (int64_t rows : {1, 8}) {
    const OpSignature signature =
        Region({F32({rows, 2048})}, "aten::sum.dim_IntList", {In(0), Json::array({1}), false},
               {F32({rows})}, {{"dtype", nullptr}});
    const auto checker = Make(signature);
    ASSERT_NE(checker, nullptr);
    int passed[4] = {};  // in lanes, in bfloat16, without the last element, one element off
    for (size_t i = 0; i < checker->case_count(); ++i) {
      const at::Tensor x = Tensors(signature, checker->inputs(i))[0];
      const at::Tensor right = x.view({rows, 32, 64}).sum(1).sum(1);
      at::Tensor off = right.clone();
      off[rows - 1] *= 1.0001;
      const at::Tensor tries[] = {right, x.to(at::kBFloat16).to(at::kFloat).sum(1),
                                  x.slice(1, 0, 2047).sum(1), off};
      for (size_t t = 0; t < 4; ++t) {
        const std::string bytes = BytesOf(tries[t]);
        passed[t] += checker->Check(i, std::span(&bytes, 1)).accepted() ? 1 : 0;
      }
    }
    const auto every = static_cast<int>(checker->case_count());
    EXPECT_EQ(passed[0], every);
    for (size_t t = 1; t < 4; ++t) EXPECT_LT(passed[t], every) << "wrong kernel " << t;
  }
}

TEST(Checker, SecondOutputIsJudged) {
  const OpSignature signature = LayerNorm();
  const auto checker = Make(signature);
  ASSERT_NE(checker, nullptr);
  const auto program = *RegionProgram::Create(signature);
  std::vector<std::string> outputs;
  for (const at::Tensor& t : program->RunStrided(Tensors(signature, checker->inputs(0)))) {
    outputs.push_back(BytesOf(t));
  }
  outputs[2][3] ^= 1;  // an exponent bit of the first reciprocal deviation
  EXPECT_EQ(checker->Check(0, outputs).kind, VerdictKind::kWrongValues);
}

float Tree(float (&parts)[16]) {
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) parts[i] += parts[i + half];
  }
  return parts[0];
}

TEST(Checker, AnotherCorrectAlgorithmPassesLayerNorm) {
  // Float32 in sixteen lanes: the mean, the distances, the scale; a reciprocal instead of a
  // division.
  const OpSignature signature = LayerNorm();
  const auto checker = Make(signature);
  ASSERT_NE(checker, nullptr);
  for (size_t i = 0; i < checker->case_count(); ++i) {
    const auto in = Tensors(signature, checker->inputs(i));
    std::vector<float> y(12 * 96), means(12), rstds(12);
    const float* x = in[0].const_data_ptr<float>();
    for (size_t row = 0; row < 12; ++row, x += 96) {
      float parts[16] = {}, squares[16] = {};
      for (size_t c = 0; c < 96; ++c) parts[c % 16] += x[c];
      const float mean = Tree(parts) * (1.0f / 96);
      for (size_t c = 0; c < 96; ++c) squares[c % 16] += (x[c] - mean) * (x[c] - mean);
      const float rstd = 1 / std::sqrt(Tree(squares) * (1.0f / 96) + 1e-5f);
      for (size_t c = 0; c < 96; ++c) {
        y[row * 96 + c] = (x[c] - mean) * rstd * in[1].const_data_ptr<float>()[c] +
                          in[2].const_data_ptr<float>()[c];
      }
      means[row] = mean;
      rstds[row] = rstd;
    }
    std::vector<std::string> outputs;
    for (const auto* values : {&y, &means, &rstds}) {
      outputs.emplace_back(reinterpret_cast<const char*>(values->data()), values->size() * 4);
    }
    const Verdict verdict = checker->Check(i, outputs);
    EXPECT_TRUE(verdict.accepted()) << verdict.message;
  }
}

// A sum near zero takes the other sign when it is added up in another order, and relu makes of that
// zero or not zero, in a handful of elements of many.
TEST(Checker, AnotherOrderOfAdditionPassesWhereAFunctionBends) {
  constexpr int64_t kRows = 768, kInner = 256;
  OpSignature signature = Region({F32({kRows, kInner}), F32({kInner, kRows})}, "aten::mm",
                                 {In(0), In(1)}, {F32({kRows, kRows})});
  signature.nodes.push_back(
      {"aten::relu", {Json{{"node", 0}, {"out", 0}}}, Json::object(), {F32({kRows, kRows})}});
  signature.outputs = {{1, 0}};
  for (uint64_t seed = 0; seed < 2; ++seed) {
    auto checker = RegionChecker::Create(signature, 0, seed);
    ASSERT_TRUE(checker.ok()) << checker.status().ToString();
    for (size_t i = 0; i < (*checker)->case_count(); ++i) {
      const std::vector<at::Tensor> in = Tensors(signature, (*checker)->inputs(i));
      at::Tensor sum = at::zeros({kRows, kRows});
      for (int64_t k = 0; k < kInner; k += 16) {
        sum = sum + at::mm(in[0].slice(1, k, k + 16), in[1].slice(0, k, k + 16));
      }
      std::string output = BytesOf(at::relu(sum));
      const Verdict verdict = (*checker)->Check(i, {&output, 1});
      EXPECT_TRUE(verdict.accepted()) << "seed " << seed << ": " << verdict.message;
      // An element that is wrong by more than rounding stays wrong, alone among many or not.
      const float wrong = 1e-2F * sum.abs().nan_to_num(0, 1, 1).max().item<float>() + 1e-30F;
      const float* values = sum.const_data_ptr<float>();
      const size_t place = 12'345;
      if (!std::isfinite(values[place])) continue;
      const float value = std::max(values[place], 0.0F) + wrong;
      std::memcpy(output.data() + place * sizeof(float), &value, sizeof(value));
      EXPECT_FALSE((*checker)->Check(i, {&output, 1}).accepted())
          << (*checker)->inputs(i).name << " " << values[place] << " " << value;
    }
  }
}

// Of one element that is just beyond its limit, more moves, and then ATen's errors on more sets,
// say whether rounding explains it: they clear some of the rows, none of two at once, and are not
// asked of an output of fewer than 1,000 elements.
TEST(Checker, OneElementInDoubtIsLookedAtMoreClosely) {
  for (const int64_t rows : {999, 1000, 5000}) {
    const OpSignature signature = Region({F32({rows, 64})}, "aten::sum.dim_IntList",
                                         {In(0), Json::array({1})}, {F32({rows})});
    const auto program = RegionProgram::Create(signature);
    ASSERT_TRUE(program.ok()) << program.status().ToString();
    const auto checker = Make(signature);
    ASSERT_NE(checker, nullptr);
    const at::Tensor right = (*program)->RunStrided(Tensors(signature, checker->inputs(0))).front();
    int cleared = 0;
    for (int64_t row = 0; row < 200; row += 2) {
      const auto check = [&](const std::vector<double>& errors) {
        at::Tensor values = right.clone();
        for (size_t i = 0; i < errors.size(); ++i) {
          values[row + static_cast<int64_t>(i)] += errors[i];
        }
        const std::string bytes = BytesOf(values);
        return checker->Check(0, {&bytes, 1});
      };
      const double first = check({1.0}).evidence.at("limit").get<double>();
      const double second = check({0.0, 1.0}).evidence.at("limit").get<double>();
      EXPECT_FALSE(check({1.3 * first, 1.3 * second}).accepted());
      cleared += check({1.3 * first}).accepted();
    }
    if (rows < 1000) {
      EXPECT_EQ(cleared, 0);
    } else {
      EXPECT_GT(cleared, 0);
      EXPECT_LT(cleared, 50);
    }
  }
}

// The logarithm of a sum just above one errs by the rounding of that sum, which no move of what is
// summed shows: where ATen happens to err by less on one set, more sets tell.
TEST(Checker, OneElementInDoubtIsJudgedByAtensErrorsOnMoreSets) {
  const OpSignature signature =
      Region({F32({48, 64})}, "aten::_log_softmax", {In(0), -1, false}, {F32({48, 64})});
  const auto program = RegionProgram::Create(signature);
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  int tried = 0, cleared = 0;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    auto checker = RegionChecker::Create(signature, 0, seed);
    ASSERT_TRUE(checker.ok()) << checker.status().ToString();
    for (size_t i = 0; i < (*checker)->case_count(); ++i) {
      if ((*checker)->inputs(i).name != "mixed") continue;
      const at::Tensor right =
          (*program)->RunStrided(Tensors(signature, (*checker)->inputs(i))).front();
      for (int64_t at = 0; at < right.numel(); ++at) {
        const float value = right.const_data_ptr<float>()[at];
        if (!(value < 0 && value > -1e-4F)) continue;
        const auto check = [&](double error) {
          at::Tensor values = right.clone();
          values.view(-1)[at] += error;
          const std::string bytes = BytesOf(values);
          return (*checker)->Check(i, {&bytes, 1});
        };
        const double limit = check(-1.0).evidence.at("limit").get<double>();
        EXPECT_FALSE(check(-1e-6).accepted());
        ++tried;
        cleared += check(-1.5 * limit).accepted();
      }
    }
  }
  EXPECT_GT(tried, 4);
  EXPECT_GT(cleared, 0);
}

TEST(Checker, ReportNamesTheRules) {
  const auto relu =
      Make(Region({F32({8, 50})}, "aten::relu", Json::array({In(0)}), {F32({8, 50})}));
  EXPECT_EQ(relu->Report()["cases"][0]["rule"], "equal");
  const Json report = Make(LayerNorm())->Report();
  EXPECT_EQ(report["cases"][0]["rule"], "tolerance");
  EXPECT_EQ(report["aten_deterministic"], true);
  EXPECT_GT(report["cases"][0]["aten_max_error"].get<double>(), 0);
}

TEST(Checker, RefusesWhatItCannotJudge) {
  const auto code = [](const OpSignature& signature) {
    return RegionChecker::Create(signature, 0, 1).status().code();
  };
  const auto unary = [](const char* op, TensorSpec in, TensorSpec out) {
    return Region({std::move(in)}, op, Json::array({In(0)}), {std::move(out)});
  };
  EXPECT_EQ(code(unary("aten::relu", F32({0, 4}), F32({0, 4}))), StatusCode::kUnsupported);
  EXPECT_EQ(code(Region({F32({4, 4})}, "aten::ge.Scalar", {In(0), {{"float", "nan"}}},
                        {Spec(DType::kBool, {4, 4})})),
            StatusCode::kUnsupported)
      << "always false: zeros would pass";
  EXPECT_EQ(code(unary("aten::no_such_op", F32({4}), F32({4}))), StatusCode::kUnsupported);
}

TEST(Checker, SaysWhetherInputsWereRefusedOrTheResultIsAnother) {
  const auto why = [](TensorSpec in, const char* op, Json args, TensorSpec out) {
    const OpSignature region = Region({std::move(in)}, op, std::move(args), {std::move(out)});
    return RegionChecker::Create(region, 0, 1).status().ToString();
  };
  const Json relu = Json::array({In(0)});
  const std::string other = why(F32({8}), "aten::relu", relu, Spec(DType::kFloat64, {8}));
  EXPECT_NE(other.find("PyTorch's kernel gives something else than its trace says: "),
            std::string::npos)
      << other;
  const std::string refused = why(F32({8}), "aten::cumsum", Json::array({In(0), 3}), F32({8}));
  EXPECT_NE(refused.find("PyTorch itself refuses this region's inputs: "), std::string::npos)
      << refused;
}

TEST(Checker, IsNotMadeWhereItWouldTakeTooLong) {
  for (const double seconds : {-1.0, 1e-9}) {
    const auto checker = RegionChecker::Create(LayerNorm(), 0, 1, seconds);
    EXPECT_EQ(checker.status().code(), StatusCode::kTimeout) << seconds;
  }
  EXPECT_TRUE(RegionChecker::Create(LayerNorm(), 0, 1, 600).ok());
}

TEST(Checker, LeavesTheGeneratorAlone) {
  at::manual_seed(5);
  const at::Tensor expected = at::rand({4});
  at::manual_seed(5);
  Make(LayerNorm());
  EXPECT_TRUE(at::equal(at::rand({4}), expected));
}

}  // namespace
}  // namespace cudaforge
