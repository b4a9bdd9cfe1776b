// Means and related values of special inputs.
#include <gtest/gtest.h>

#include <cmath>

#include "generators/rows/cuda/plan.h"
#include "tests/cpp/generators/cuda_host_runs.h"
#include "tests/cpp/generators/region.h"

namespace cudaforge::rows {
namespace {

// Six rows of eight: an infinity first, inside and last; two of one sign, two of both; a NaN.
Memory SpecialRows(const TensorSpec& spec) {
  Memory x = RandomMemory(spec, 1);
  x[0].f = x[8 + 3].f = kInf;
  x[16 + 7].f = -kInf;
  x[24 + 1].f = x[24 + 6].f = kInf;
  x[32 + 1].f = kInf;
  x[32 + 6].f = -kInf;
  x[40 + 4].f = kNan;
  return x;
}

const std::vector<double> kMeans = {kInf, kInf, -kInf, kInf, kNan, kNan};
const std::vector<double> kNans(6, kNan);

TEST(LowerMoments, InfinitiesGiveInfiniteMeanAndNanVariance) {
  Region region;
  const Json x = region.Input(Spec({6, 8}));
  region.Call("var_mean.correction", {x, {1}, 1, false}, {Spec({6}), Spec({6})});
  const auto got = LowerAndRun(region.Signature(), {SpecialRows(Spec({6, 8}))});
  ExpectNear(got[0], kNans);
  ExpectNear(got[1], kMeans);
}

TEST(LowerMoments, NormsSaveInfiniteMeans) {
  Region layer;
  const Json x = layer.Input(Spec({6, 8}));
  layer.Call("native_layer_norm", {x, {8}, nullptr, nullptr, 1e-5},
             {Spec({6, 8}), Spec({6, 1}), Spec({6, 1})});
  Region group;
  const Json y = group.Input(Spec({3, 4, 4}));
  group.Call("native_group_norm", {y, nullptr, nullptr, 3, 4, 4, 2, 1e-5},
             {Spec({3, 4, 4}), Spec({3, 2}), Spec({3, 2})});
  for (const Region& region : {layer, group}) {
    const auto got = LowerAndRun(region.Signature(), {SpecialRows(Spec({6, 8}))});
    ExpectNear(got[0], std::vector<double>(48, kNan));
    ExpectNear(got[1], kMeans);
    ExpectNear(got[2], kNans);
  }
}

TEST(LowerMoments, OverflowingSquaresKeepTheMeanFinite) {
  Region region;
  const Json x = region.Input(Spec({2, 4}));
  region.Call("var_mean.correction", {x, {1}, 1, false}, {Spec({2}), Spec({2})});
  Memory in(8);
  const double values[] = {1e200, -1e200, 2e200, -2e200, 1e200, 1e200, 1e200, -1e200};
  for (size_t i = 0; i < 8; ++i) in[i].f = values[i];
  const auto got = LowerAndRun(region.Signature(), {in});  // in double
  ExpectNear(got[0], {kInf, kInf});
  ExpectNear(got[1], {0, 5e199});
}

TEST(LowerMomentsOnHost, CudaKernelsAgreeOnSpecialValues) {
  HostRuns host;
  const DeviceArch hopper{.target = "cuda:sm_90a",
                          .multiprocessors = 132,
                          .max_threads_per_multiprocessor = 2048,
                          .shared_bytes_per_block_optin = 232448};
  for (const int dim : {0, 1}) {
    Region region;
    const Json x = region.Input(Spec({40, 40}));
    region.Call("var_mean.correction", {x, {dim}, 1, false}, {Spec({40}), Spec({40})});
    OpSignature signature = region.Signature();
    signature.device = DeviceType::kCuda;
    const Program program = *Lower(signature);
    ASSERT_EQ(program.stages.size(), 1u);
    const auto schedules = CudaSchedules(program.stages[0], hopper);
    for (size_t i = 0; i < std::min<size_t>(schedules.size(), 3); ++i) {
      host.Add("var_mean", signature, program, program, {schedules[i]}, /*specials=*/true);
    }
  }
  host.Go();
}

}  // namespace
}  // namespace cudaforge::rows
