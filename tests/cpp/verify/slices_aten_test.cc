// Slices of many regions against the same elements of the whole in float64.
#include <gtest/gtest.h>

#include <set>

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
  const std::vector<at::Tensor> inputs = DrawnInputs(one, 5);
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

}  // namespace
}  // namespace cudaforge
