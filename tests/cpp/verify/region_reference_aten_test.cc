// Which regions can be judged, and that ATen's answers are accepted.
#include <gtest/gtest.h>

#include "tests/cpp/verify/tried_region_aten.h"

namespace cudaforge {
namespace {

OpSignature AveragesBackward(int64_t in, int64_t kernel) {
  const Json square = Json::array({kernel, kernel});
  const int64_t out = in / kernel;
  return Region({F32({1, 1, out, out}), F32({1, 1, in, in})}, "aten::avg_pool2d_backward",
                {In(0), In(1), square, square, Json::array({0, 0}), false, true, nullptr},
                {F32({1, 1, in, in})});
}

OpSignature NormOfRows() {
  return Region({F32({12, 96}), F32({96}), F32({96})}, "aten::native_layer_norm",
                {In(0), Json::array({96}), In(1), In(2), 1e-5},
                {F32({12, 96}), F32({12, 1}), F32({12, 1})});
}

OpSignature ReluOf(TensorSpec in, TensorSpec out) {
  return Region({std::move(in)}, "aten::relu", Json::array({In(0)}), {std::move(out)});
}

// ATen's answers pass on every set. With one element changed by a tenth of the largest they fail.
void ExpectAtenAlone(const OpSignature& signature) {
  TriedRegion tried(signature);
  ASSERT_TRUE(tried.status().ok()) << tried.status().ToString();
  EXPECT_GE(tried.set_count(), 5u);
  for (size_t set = 0; set < tried.set_count(); ++set) {
    tried.Draw(set);
    const std::vector<at::Tensor> aten = tried.Aten();
    const Verdict verdict = tried.Check(set, aten);
    EXPECT_TRUE(verdict.accepted()) << tried.set_name(set) << ": " << verdict.message;
    if (!tried.set_name(set).starts_with("normal")) continue;
    for (size_t o = 0; o < aten.size(); ++o) {
      const int64_t numel = aten[o].numel();
      for (const int64_t at : {int64_t{0}, numel / 3, numel - 1}) {
        std::vector<at::Tensor> wrong = aten;
        wrong[o] = aten[o].contiguous().clone();
        const at::Tensor element = wrong[o].view(-1)[at];
        if (at::isFloatingType(element.scalar_type())) {
          element.add_(0.1 * aten[o].abs().max().item<double>() + 1e-6);
        } else {
          element.add_(1);
        }
        EXPECT_EQ(tried.Check(set, wrong).kind, VerdictKind::kWrongValues)
            << tried.set_name(set) << ", output " << o << ", element " << at;
      }
    }
  }
}

TEST(RegionReference, AcceptsAtenAndNoOtherElement) {
  const Json yes3 = Json::array({true, true, true});
  const TensorSpec labels = Spec(DType::kInt64, {64});
  const std::vector<OpSignature> regions = {
      NormOfRows(),
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
      AveragesBackward(4, 2),
      AveragesBackward(4, 4),  // every row is one value
      AveragesBackward(5, 2),  // the last row gets no gradient
      Region({F32({9, 130}, {260, 2})}, "aten::_log_softmax", {In(0), -1, false}, {F32({9, 130})}),
      Region({F32({9, 40}), F32({9, 40})}, "aten::_softmax_backward_data",
             {In(0), In(1), 1, {{"dtype", "float32"}}}, {F32({9, 40})}),
      Region({F32({64, 10}), labels}, "aten::nll_loss_forward", {In(0), In(1), nullptr, 1, -100},
             {F32({}), F32({})}),
      Region({F32({}), F32({64, 10}), labels, F32({})}, "aten::nll_loss_backward",
             {In(0), In(1), In(2), nullptr, 1, -100, In(3)}, {F32({64, 10})}),
      Region({F32({2, 3, 4, 4}), F32({2, 3, 8, 8}), Spec(DType::kInt64, {2, 3, 4, 4})},
             "aten::max_pool2d_with_indices_backward",
             {In(0), In(1), Json::array({2, 2}), Json::array({2, 2}), Json::array({0, 0}),
              Json::array({1, 1}), false, In(2)},
             {F32({2, 3, 8, 8})}),
      Region({Spec(DType::kInt32, {7, 33})}, "aten::sum.dim_IntList",
             {In(0), Json::array({1}), false}, {Spec(DType::kInt64, {7})}, {{"dtype", nullptr}}),
      Region({Spec(DType::kBFloat16, {8, 50})}, "aten::cumsum", {In(0), 1},
             {Spec(DType::kBFloat16, {8, 50})}, {{"dtype", nullptr}}),
      Region({F32({8, 50}, {0, 1}), F32({8, 50})}, "aten::mul.Tensor", {In(0), In(1)},
             {F32({8, 50})}),
      Region({Spec(DType::kFloat64, {8, 50})}, "aten::_softmax", {In(0), 1, false},
             {Spec(DType::kFloat64, {8, 50})}),
      ReluOf(F32({8, 50}), F32({8, 50})),
      Region({F32({1000})}, "aten::mean", Json::array({In(0)}), {F32({})}, {{"dtype", nullptr}})};
  for (const OpSignature& region : regions) {
    SCOPED_TRACE(region.Describe());
    ExpectAtenAlone(region);
  }
}

TEST(RegionReference, ReportNamesTheRules) {
  TriedRegion relu(ReluOf(F32({8, 50}), F32({8, 50})));
  EXPECT_EQ(relu.Report()["cases"][0]["rule"], "equal");
  TriedRegion norm(NormOfRows());
  const Json report = norm.Report();
  EXPECT_EQ(report["cases"].size(), 3 * norm.set_count());
  EXPECT_EQ(report["cases"][0]["rule"], "tolerance");
  EXPECT_EQ(report["aten_deterministic"], true);
  EXPECT_GT(report["cases"][0]["aten_max_error"].get<double>(), 0);
}

TEST(RegionReference, RefusesUnjudgeableRegions) {
  const auto code = [](const OpSignature& signature) {
    return TriedRegion(signature).status().code();
  };
  const TensorSpec bools = Spec(DType::kBool, {8, 40});
  EXPECT_EQ(code(ReluOf(F32({0, 4}), F32({0, 4}))), StatusCode::kUnsupported);
  EXPECT_EQ(code(Region({F32({8, 40})}, "aten::ge.Scalar", {In(0), {{"float", "nan"}}}, {bools})),
            StatusCode::kUnsupported)
      << "always false: zeros would pass";
  EXPECT_EQ(code(Region({F32({8, 40})}, "aten::eq.Scalar", {In(0), 12345.678}, {bools})),
            StatusCode::kUnsupported)
      << "false on all sets";
  EXPECT_EQ(code(Region({F32({4})}, "aten::no_such_op", Json::array({In(0)}), {F32({4})})),
            StatusCode::kUnsupported);
}

TEST(RegionReference, DistinguishesRefusedInputsFromOtherResults) {
  const Status other = TriedRegion(ReluOf(F32({8}), Spec(DType::kFloat64, {8}))).status();
  EXPECT_EQ(other.code(), StatusCode::kUnsupported);
  EXPECT_NE(other.message().find("than its trace"), std::string::npos) << other.ToString();
  const Status refused =
      TriedRegion(Region({F32({8})}, "aten::cumsum", {In(0), 3}, {F32({8})})).status();
  EXPECT_EQ(refused.code(), StatusCode::kUnsupported);
  EXPECT_NE(refused.message().find("refuses this region's inputs"), std::string::npos)
      << refused.ToString();
}

TEST(RegionReference, StopsIfPreparingTakesTooLong) {
  for (const double seconds : {-1.0, 1e-9}) {
    EXPECT_EQ(TriedRegion(NormOfRows(), 1, seconds).status().code(), StatusCode::kTimeout);
  }
  EXPECT_TRUE(TriedRegion(NormOfRows(), 1, 600).status().ok());
}

TEST(RegionReference, DoesNotUseTorchsGenerator) {
  at::manual_seed(5);
  const at::Tensor expected = at::rand({4});
  at::manual_seed(5);
  TriedRegion tried(NormOfRows());
  tried.Draw(0);
  EXPECT_TRUE(tried.Check(0, tried.Aten()).accepted());
  EXPECT_TRUE(at::equal(at::rand({4}), expected));
}

TEST(RegionReference, RedrawnSetsAreEqual) {
  TriedRegion tried(NormOfRows(), 3), same(NormOfRows(), 3), other(NormOfRows(), 4);
  for (size_t set = 0; set < tried.set_count(); ++set) {
    const at::Tensor first = tried.Draw(set)[0].clone();
    tried.Draw((set + 1) % tried.set_count());
    const auto equal = [&first](const at::Tensor& x) {
      return at::equal(x.view(at::kInt), first.view(at::kInt));
    };
    EXPECT_TRUE(equal(tried.Draw(set)[0])) << tried.set_name(set);
    EXPECT_TRUE(equal(same.Draw(set)[0])) << tried.set_name(set);
    if (tried.set_name(set) != "all_equal") {
      EXPECT_FALSE(equal(other.Draw(set)[0])) << tried.set_name(set);
    }
  }
}

// An unused sum of weights, and the index in rows of one element.
TEST(RegionReference, ConstantsAreComparedTogetherWithOtherOutputs) {
  TriedRegion loss(Region({F32({64, 10}), Spec(DType::kInt64, {64})}, "aten::nll_loss_forward",
                          {In(0), In(1), nullptr, 0, -100}, {F32({64}), F32({})}));
  ASSERT_TRUE(loss.status().ok()) << loss.status().ToString();
  for (size_t set = 0; set < loss.set_count(); ++set) {
    loss.Draw(set);
    const std::vector<at::Tensor> right = loss.Aten();
    EXPECT_TRUE(loss.Check(set, right).accepted());
    for (const float wrong : {-0.0F, 1e-45F, 64.0F}) {
      const Verdict verdict = loss.Check(set, {right[0], at::full({}, wrong)});
      EXPECT_EQ(verdict.kind, VerdictKind::kWrongValues) << wrong;
    }
    at::Tensor other = right[0].clone();
    other[0] = 2 * other[0] + 1;
    if (std::isfinite(right[0][0].item<float>())) {
      EXPECT_EQ(loss.Check(set, {other, right[1]}).kind, VerdictKind::kWrongValues);
    }
  }
  TriedRegion place(
      Region({F32({4, 1})}, "aten::argmax", {In(0), 1, false}, {Spec(DType::kInt64, {4})}));
  ASSERT_TRUE(place.status().ok()) << place.status().ToString();
  place.Draw(0);
  at::Tensor zeros = at::zeros({4}, at::kLong);
  EXPECT_TRUE(place.Check(0, {zeros}).accepted());
  zeros[1] = 1;
  EXPECT_FALSE(place.Check(0, {zeros}).accepted());
}

// ATen's order of equal elements is that of an unstable sort.
TEST(RegionReference, SortedIndicesOfEqualsMayDiffer) {
  const TensorSpec spec = F32({64, 131});
  for (const bool top : {false, true}) {
    const int64_t kept = top ? 8 : 131;
    const OpSignature signature =
        Region({spec}, top ? "aten::topk" : "aten::sort",
               top ? Json::array({In(0), 8, -1, true, true}) : Json::array({In(0), -1, false}),
               {F32({64, kept}), Spec(DType::kInt64, {64, kept})});
    TriedRegion tried(signature);
    ASSERT_TRUE(tried.status().ok()) << tried.status().ToString();
    for (size_t set = 0; set < tried.set_count(); ++set) {
      const std::vector<at::Tensor>& inputs = tried.Draw(set);
      const auto [values, places] = at::sort(inputs[0], true, 1, top);
      const at::Tensor first = values.narrow(1, 0, kept).contiguous();
      const at::Tensor named = places.narrow(1, 0, kept).contiguous();
      const Verdict verdict = tried.Check(set, {first, named});
      EXPECT_TRUE(verdict.accepted()) << tried.set_name(set) << ": " << verdict.message;
      for (const int64_t place : {named[5][1].item<int64_t>(), int64_t{-1}, int64_t{131}}) {
        const at::Tensor wrong = named.clone();
        wrong[5][0] = place;  // repeated, or missing
        EXPECT_EQ(tried.Check(set, {first, wrong}).kind, VerdictKind::kWrongValues)
            << tried.set_name(set) << " " << place;
      }
    }
  }
}

}  // namespace
}  // namespace cudaforge
