#include "generators/rows/rewrite/split.h"

#include <gtest/gtest.h>

#include "tests/cpp/generators/region.h"

namespace cudaforge::rows {
namespace {

OpSignature Reduce(const std::string& op, Json args, TensorSpec input, TensorSpec output) {
  Region region;
  args.insert(args.begin(), region.Input(std::move(input)));
  region.Call(op, std::move(args), {std::move(output)});
  return region.Signature();
}

void ExpectSameResults(const OpSignature& signature, const Program& a, const Program& b) {
  ASSERT_TRUE(b.Validate(signature).ok()) << b.Validate(signature).ToString() << b.ToString();
  const std::vector<Memory> inputs = RandomInputs(signature);
  const auto want = ProgramRunner::Run(a, signature, inputs);
  const auto got = ProgramRunner::Run(b, signature, inputs);
  for (size_t o = 0; o < want.size(); ++o) {
    for (size_t i = 0; i < want[o].size(); ++i) {
      EXPECT_NEAR(got[o][i].f, want[o][i].f, 1e-9);
      EXPECT_EQ(got[o][i].i, want[o][i].i);
    }
  }
}

TEST(Split, SumsOfEvenAndUnevenParts) {
  const OpSignature sum = Reduce("sum.dim_IntList", {{0}, false}, Spec({30, 4}), Spec({4}));
  const Program program = *Lower(sum);
  for (int64_t chunks : {2, 4, 7, 29, 30, 100}) {
    const Result<Program> split = SplitStage(program, 0, chunks);
    ASSERT_TRUE(split.ok()) << split.status().ToString();
    EXPECT_EQ(split->stages.size(), 2u);
    ExpectSameResults(sum, program, *split);
  }
}

TEST(Split, ArgMaxKeepsTheFirst) {
  const OpSignature argmax =
      Reduce("argmax", {nullptr, false}, Spec({37}, DType::kInt64), Spec({}, DType::kInt64));
  const Program program = *Lower(argmax);
  for (int64_t chunks : {2, 5, 6, 37}) {
    ExpectSameResults(argmax, program, *SplitStage(program, 0, chunks));
  }
}

TEST(Split, RefusesUnsplittableStages) {
  const OpSignature softmax = Reduce("_softmax", {1, false}, Spec({2, 64}), Spec({2, 64}));
  EXPECT_EQ(SplitStage(*Lower(softmax), 0, 4).status().code(), StatusCode::kUnsupported);
  const OpSignature var = Reduce("var.correction", {{1}}, Spec({2, 64}), Spec({2}));
  EXPECT_EQ(SplitStage(*Lower(var), 0, 4).status().code(), StatusCode::kUnsupported);
  const OpSignature sum = Reduce("sum.dim_IntList", {{1}, false}, Spec({2, 64}), Spec({2}));
  EXPECT_FALSE(SplitStage(*Lower(sum), 0, 1).ok());
  EXPECT_FALSE(SeparateSweeps(*Lower(sum), 0).ok());
}

TEST(Split, SeparatedSoftmaxSplits) {
  const OpSignature softmax = Reduce("_softmax", {1, false}, Spec({3, 70}), Spec({3, 70}));
  const Program program = *Lower(softmax);
  Program separate = *SeparateSweeps(program, 0);
  ASSERT_EQ(separate.stages.size(), 3u);
  ExpectSameResults(softmax, program, separate);
  Program split = *SplitStage(separate, 1, 4);
  split = *SplitStage(split, 0, 9);
  EXPECT_EQ(split.stages.size(), 5u);
  ExpectSameResults(softmax, program, split);
}

TEST(Split, SeparatedVarianceHasNoElementStage) {
  const OpSignature var = Reduce("var.correction", {{1}}, Spec({3, 70}), Spec({3}));
  const Program separate = *SeparateSweeps(*Lower(var), 0);
  EXPECT_EQ(separate.stages.size(), 2u);
  ExpectSameResults(var, *Lower(var), separate);
}

}  // namespace
}  // namespace cudaforge::rows
