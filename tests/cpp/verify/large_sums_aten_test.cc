// Regions with sums over more than fits, which are split and computed in blocks.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/cpp/verify/drawn_aten.h"
#include "tests/cpp/verify/slice_regions_aten.h"
#include "verify/aten_slice_judgement.h"
#include "verify/aten_slice_set.h"

namespace cudaforge {
namespace {

using B = RegionBuilder;

struct SplitCase {
  std::string name;
  OpSignature signature;
  size_t sums = 1;
  double rounding = 1e-5;  // of ATen's answers
};

std::vector<SplitCase> SplitCases() {
  std::vector<SplitCase> all;
  {
    B b;
    const Json x = b.Input({64, 300});
    all.push_back({"sum of all", b.Done({b.Call("sum", {x}, {F32({})})})});
  }
  {
    B b;
    const Json x = b.Input({40, 6, 50});
    const Json e = b.Call("exp", {x}, {F32({40, 6, 50})});
    all.push_back({"sum of two dimensions",
                   b.Done({b.Call("sum.dim_IntList", {e, L({0, 2}), true}, {F32({1, 6, 1})})})});
  }
  {
    B b;
    const Json x = b.Input({100, 100}, DType::kBFloat16);
    all.push_back(
        {"mean of bfloat16", b.Done({b.Call("mean", {x}, {Spec(DType::kBFloat16, {})})}), 1, 1e-2});
  }
  {
    B b;
    const Json x = b.Input({4, 8, 8, 60}, DType::kFloat32, {3840, 1, 480, 8});
    const Json mean = b.Call("mean", {x}, {F32({})});
    const Json off = b.Call("sub.Tensor", {x, mean}, {F32({4, 8, 8, 60})});
    const Json square = b.Call("mul.Tensor", {off, off}, {F32({4, 8, 8, 60})});
    all.push_back({"variance of all, strided", b.Done({b.Call("mean", {square}, {F32({})})}), 2});
  }
  {
    B b;
    const Json x = b.Input({90, 100});
    const Json s = b.Call("sum", {b.Call("mul.Tensor", {x, x}, {F32({90, 100})})}, {F32({})});
    const Json n = b.Call("sqrt", {s}, {F32({})});
    all.push_back({"x / x.norm()", b.Done({b.Call("div.Tensor", {x, n}, {F32({90, 100})})})});
  }
  {
    B b;
    const Json x = b.Input({300, 20}), t = b.Input({300}, DType::kInt64), w = b.Input({20});
    const Json y = b.Call("_log_softmax", {x, 1, false}, {F32({300, 20})});
    const Json loss = b.Call("nll_loss_forward", {y, t, w, 1, -100}, {F32({}), F32({})});
    all.push_back({"cross entropy", b.Done({loss, B::Other(loss, 1)})});
  }
  {
    B b;
    const Json x = b.Input({300, 20}), t = b.Input({300}, DType::kInt64);
    const Json y = b.Call("_log_softmax", {x, 1, false}, {F32({300, 20})});
    const Json loss = b.Call("nll_loss_forward", {y, t, nullptr, 2, -100}, {F32({}), F32({})});
    all.push_back(
        {"sum of cross entropies", b.Done({b.Call("mul.Tensor", {loss, 0.5}, {F32({})})})});
  }
  return all;
}

SliceLimits Tight() {
  SliceLimits limits;
  limits.bytes = 20'000;
  limits.aim = 0;
  limits.fewest = 4;
  return limits;
}

void CheckSplit(const SplitCase& one) {
  const auto program = RegionProgram::Create(one.signature);
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  const std::vector<at::Tensor> inputs = DrawnTensors(one.signature, "normal", 5, 5);
  const std::vector<at::Tensor> whole = (*program)->RunFp64(inputs);
  const std::vector<at::Tensor> aten = (*program)->RunStrided(inputs);
  for (size_t o = 0; o < one.signature.outputs.size(); ++o) {
    SCOPED_TRACE("output " + std::to_string(o));
    const DType dtype = one.signature.output_spec(o).dtype;
    const auto plan = SlicePlan::Make(FindAxes(one.signature, o), Tight());
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    EXPECT_EQ(plan->sums().size(), one.sums);
    EXPECT_LE(plan->bytes(), Tight().bytes);
    EXPECT_GT(plan->work(), Tight().bytes);
    MeasuredElements elements;
    const Status measured =
        MeasureSlices(*plan, plan->Batches(std::vector<int64_t>{0}, plan->slices(), 1 << 10, 3),
                      inputs, aten[o], 7, kThorough, &elements);
    ASSERT_TRUE(measured.ok()) << measured.ToString();
    EXPECT_GE(elements.runs.size(), 7u);
    ASSERT_GT(elements.count(), 0u);
    const at::Tensor right = whole[o].to(at::kDouble).reshape(-1);
    int moved = 0;
    for (size_t i = 0; i < elements.count(); ++i) {
      const double r = right[elements.numbers[i]].item<double>();
      const double size = std::max(std::fabs(r), 0.1);
      EXPECT_NEAR(elements.float64[i], r, 1e-12 * size);
      for (const std::string& run : elements.runs) {
        const size_t at = i * static_cast<size_t>(DTypeSize(dtype));
        EXPECT_NEAR(LoadElement(dtype, run.data() + at), r, one.rounding * size);
      }
      for (const std::vector<double>& move : elements.moves) {
        EXPECT_NEAR(move[i], r, one.rounding * size);
        moved += move[i] != elements.float64[i] ? 1 : 0;
      }
    }
    EXPECT_GT(moved, 0);
    // Known sums are not recomputed.
    const size_t known = elements.sums->size();
    const auto more = PerturbSlices(*plan, elements, inputs, 7);
    ASSERT_TRUE(more.ok()) << more.status().ToString();
    EXPECT_EQ(more->size(), kMorePerturbations);
    EXPECT_EQ(elements.sums->size(), known + kMorePerturbations);
  }
}

TEST(LargeSums, EqualTheWholeSums) {
  for (const SplitCase& one : SplitCases()) {
    SCOPED_TRACE(one.name);
    try {
      CheckSplit(one);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

// Other operations are not split: each softmax needs its whole row.
TEST(LargeSums, AreCutOnlyWhereTermsAreFree) {
  B b;
  const Json x = b.Input({3000});
  const Json y = b.Call("_softmax", {x, 0, false}, {F32({3000})});
  const OpSignature signature = b.Done({b.Call("sum", {y}, {F32({})})});
  const auto plan = SlicePlan::Make(FindAxes(signature, 0), Tight());
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), StatusCode::kNoMemory);
}

// Kernels of a mean of squares: correct orders pass, a missing number fails.
TEST(LargeSums, AcceptCorrectAndRefuseWrongKernels) {
  B b;
  const Json x = b.Input({128, 256});
  const Json square = b.Call("mul.Tensor", {x, x}, {F32({128, 256})});
  const OpSignature signature = b.Done({b.Call("mean", {square}, {F32({})})});
  const auto program = RegionProgram::Create(signature);
  ASSERT_TRUE(program.ok());
  for (uint64_t seed = 0; seed < 5; ++seed) {
    auto judgement = SliceJudgement::Create(signature, Tight());
    ASSERT_TRUE(judgement.ok()) << judgement.status().ToString();
    std::vector<std::vector<at::Tensor>> inputs, aten;
    for (const char* name : {"normal", "uniform", "mixed", "by_position"}) {
      inputs.push_back(DrawnTensors(signature, name, seed, seed));
      aten.push_back((*program)->RunStrided(inputs.back()));
      ASSERT_TRUE((*judgement)->Prepare(name, {inputs.back(), aten.back()}, seed).ok());
    }
    (*judgement)->Finish();
    const auto verdict = [&](size_t set, int lanes, int64_t dropped) {
      const float* from = inputs[set][0].const_data_ptr<float>();
      std::vector<float> sums(static_cast<size_t>(lanes), 0);
      for (int64_t i = 0; i < inputs[set][0].numel() - dropped; ++i) {
        sums[static_cast<size_t>(i % lanes)] += from[i] * from[i];
      }
      float sum = 0;
      for (const float part : sums) sum += part;
      const at::Tensor output = at::full({}, sum / static_cast<float>(inputs[set][0].numel()));
      const ElementLists suspects = {{0}};
      const SliceVerdict told =
          (*judgement)->Check(set, {inputs[set], aten[set]}, {&output, 1}, suspects);
      EXPECT_TRUE(told.status.ok()) << told.status.ToString();
      return told.verdict;
    };
    int caught = 0;
    for (size_t set = 0; set < inputs.size(); ++set) {
      for (const int lanes : {8, 16, 256}) {
        const Verdict told = verdict(set, lanes, 0);
        EXPECT_TRUE(told.accepted()) << seed << " " << set << " " << lanes << told.message;
      }
      caught += verdict(set, 16, 256).accepted() ? 0 : 1;
    }
    EXPECT_GE(caught, 2) << seed;
  }
}

}  // namespace
}  // namespace cudaforge
