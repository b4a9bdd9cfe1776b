// Slices of many regions against the same elements of the whole in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/cpp/verify/drawn_aten.h"
#include "tests/cpp/verify/slice_regions_aten.h"
#include "verify/aten_slices.h"

namespace cudaforge {
namespace {

SliceLimits Small(int64_t aim) {
  SliceLimits limits;
  limits.aim = aim;
  limits.fewest = 4;
  limits.elements = 1 << 10;
  return limits;
}

// The number of outputs that were cut.
int CheckRegion(const SliceRegion& one) {
  int cut = 0;
  const auto program = RegionProgram::Create(one.signature);
  if (!program.ok()) {
    ADD_FAILURE() << program.status().ToString();
    return 0;
  }
  const std::vector<at::Tensor> inputs = DrawnTensors(one.signature, "normal", 5, 5);
  const std::vector<at::Tensor> whole = (*program)->RunFp64(inputs);
  for (size_t o = 0; o < one.signature.outputs.size(); ++o) {
    SCOPED_TRACE("output " + std::to_string(o));
    const RegionAxes axes = FindAxes(one.signature, o);
    EXPECT_EQ(!axes.FreeAxes().empty(), one.free[o]) << axes.ToJson().dump();
    const auto plan = SlicePlan::Make(axes, Small(0));
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    if (!plan.ok()) continue;
    EXPECT_EQ(plan->whole(), !one.free[o]);
    cut += plan->whole() ? 0 : 1;
    const int64_t last = one.signature.output_spec(o).numel() - 1;
    const std::vector<int64_t> wanted = {0, last, last / 2};
    const at::Tensor all = whole[o].to(at::kDouble).reshape(-1);
    std::set<int64_t> seen;
    for (const SliceBatch& batch : plan->Batches(wanted, 6, 1 << 10, 3)) {
      const auto made = CutRegion::Make(plan->axes(), batch.selection, inputs);
      EXPECT_TRUE(made.ok()) << made.status().ToString();
      if (!made.ok()) continue;
      seen.insert(batch.elements.begin(), batch.elements.end());
      const auto differ = [&](const at::Tensor& got, double relative) {
        const at::Tensor there = all.index_select(0, at::tensor(batch.elements));
        const at::Tensor have = got.to(at::kDouble).index_select(0, at::tensor(batch.local));
        const at::Tensor off = (have - there).abs().div_(there.abs().clamp_min(1));
        return off.gt(relative).sum().item<int64_t>();
      };
      EXPECT_EQ(differ(made->Float64(), 1e-12), 0);
      EXPECT_EQ(differ(made->Aten(), 2e-4), 0);
      if (!made->CanPermute()) continue;
      const auto permuted = made->AtenPermuted(9);
      EXPECT_TRUE(permuted.ok()) << permuted.status().ToString();
      EXPECT_EQ(permuted.ok() ? differ(*permuted, 2e-4) : 0, 0) << "permuted";
    }
    for (const int64_t element : wanted) EXPECT_TRUE(seen.contains(element)) << element;
  }
  return cut;
}

TEST(Slices, EqualTheWholeInFloat64) {
  int cut = 0;
  for (const SliceRegion& one : SliceRegions()) {
    SCOPED_TRACE(one.name);
    try {
      cut += CheckRegion(one);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
  EXPECT_GE(cut, 40);
}

// The float64 input of a region that negates it, before and after some perturbations.
std::vector<at::Tensor> OfMoves(const at::Tensor& x, std::vector<int64_t> strides, int moves) {
  const TensorSpec spec = Spec(DType::kFloat32, x.sizes().vec(), std::move(strides));
  OpSignature signature = Region({spec}, "aten::neg", Json::array({In(0)}), {F32(spec.sizes)});
  const at::Tensor input = x.as_strided(spec.sizes, spec.strides);
  const auto plan = SlicePlan::Make(FindAxes(signature, 0), SliceLimits());
  EXPECT_TRUE(plan.ok()) << plan.status().ToString();
  std::vector<at::Tensor> results;
  for (int r = 0; r <= moves; ++r) results.push_back(at::full({x.numel()}, NAN, at::kDouble));
  for (const SliceBatch& batch : plan->Batches({}, x.numel(), x.numel(), 3)) {
    auto cut = CutRegion::Make(plan->axes(), batch.selection, {&input, 1});
    EXPECT_TRUE(cut.ok()) << cut.status().ToString();
    const at::Tensor to = at::tensor(batch.elements), from = at::tensor(batch.local);
    for (int r = 0; r <= moves; ++r) {
      const at::Tensor all = r == 0 ? cut->Float64() : cut->Float64Perturbed(7, r - 1);
      results[static_cast<size_t>(r)].index_copy_(0, to, all.index_select(0, from).neg());
    }
  }
  return results;
}

TEST(Slices, PerturbationsAreARoundingUnit) {
  const std::vector<at::Tensor> moves = OfMoves(at::randn({40, 50}), {50, 1}, 3);
  for (size_t m = 1; m < moves.size(); ++m) {
    const at::Tensor units = (moves[m] - moves[0]) / moves[0].abs() / 0x1p-24;
    EXPECT_NEAR(units.abs().min().item<double>(), 1, 1e-3);
    EXPECT_NEAR(units.abs().max().item<double>(), 1, 1e-3);
    EXPECT_NEAR(units.mean().item<double>(), 0, 0.1) << "up as often as down";
    EXPECT_FALSE(at::equal(moves[m], moves[m % 3 + 1])) << "another move";
  }
  // Denormals are perturbed by half their spacing, zeros are not.
  const std::vector<float> small = {0x1p-149F, -0x1p-140F, 0.0F, -0.0F};
  const at::Tensor denormals = at::tensor(small).view({4, 1});
  const std::vector<at::Tensor> moved = OfMoves(denormals, {1, 1}, 1);
  const at::Tensor by = (moved[1] - moved[0]).abs();
  EXPECT_NEAR(by[0].item<double>() / 0x1p-150, 1, 1e-3);
  EXPECT_NEAR(by[1].item<double>() / 0x1p-150, 1, 1e-3);
  EXPECT_EQ(by[2].item<double>() + by[3].item<double>(), 0);
  // Shared memory is perturbed consistently.
  const at::Tensor expanded = at::randn({30, 8});
  const std::vector<at::Tensor> shared = OfMoves(expanded, {0, 1}, 1);
  const at::Tensor rows = shared[1].view({-1, 8});
  EXPECT_TRUE(at::equal(rows, rows.slice(0, 0, 1).expand_as(rows)));
}

}  // namespace
}  // namespace cudaforge
