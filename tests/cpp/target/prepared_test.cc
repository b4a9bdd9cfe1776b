// Prepared operands on the CPU target.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "target/launch_args.h"
#include "tests/cpp/target/prepared_kernel.h"

namespace cudaforge {
namespace {

constexpr int64_t kCount = 100;

class PreparedTarget : public ::testing::Test {
 protected:
  void SetUp() override {
    auto target = MakeCpuTarget();
    ASSERT_TRUE(target.ok()) << target.status().ToString();
    target_ = *std::move(target);
    const Candidate candidate = PreparedMul();
    const CompileResult compiled = target_->Compile(candidate.source, 60'000);
    ASSERT_TRUE(compiled.ok) << compiled.log;
    executable_ = target_->Load(compiled.binary, candidate, PreparedMulSignature(kCount)).value();
  }

  std::unique_ptr<Target> target_;
  std::unique_ptr<Executable> executable_;
  std::vector<float> x_ = std::vector<float>(kCount, 3), w_ = std::vector<float>(kCount, 5);
  std::vector<float> y_ = std::vector<float>(kCount), scratch_ = y_, prepared_ = y_;
  void* inputs_[2] = {x_.data(), w_.data()};
  void* outputs_[1] = {y_.data()};
  void* buffers_[2] = {scratch_.data(), prepared_.data()};
};

TEST_F(PreparedTarget, PreparedBuffersFollowTheScratch) {
  ASSERT_EQ(executable_->prepared_count(), 1u);
  ASSERT_EQ(executable_->scratch_bytes().size(), 2u);
  EXPECT_EQ(executable_->scratch_bytes()[0], kCount * 4);
  EXPECT_EQ(executable_->scratch_bytes()[1], kCount * 4);
  const LaunchPlan plan = PreparedMul().plan;
  const BufferRef of = BufferOf(plan.prepare.back().args.back(), plan);
  EXPECT_EQ(of.kind, LaunchArg::Kind::kScratch);
  EXPECT_EQ(of.index, 1u);
}

TEST_F(PreparedTarget, PreparesApart) {
  void* const frozen[] = {nullptr, w_.data()};
  ASSERT_TRUE(executable_->PrepareOperands(frozen, buffers_, target_->launch_context()).ok());
  EXPECT_EQ(prepared_, std::vector<float>(kCount, 10));
  w_.assign(kCount, 7);  // launches read the form, not the weight
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(executable_->Launch(inputs_, outputs_, buffers_, target_->launch_context()).ok());
    EXPECT_EQ(y_, std::vector<float>(kCount, 30));
  }
  EXPECT_FALSE(executable_->PrepareOperands(frozen, {}, target_->launch_context()).ok());
}

TEST_F(PreparedTarget, BoundLaunchesPrepareToo) {
  const auto bound = executable_->Bind(inputs_, outputs_, buffers_).value();
  ASSERT_TRUE(bound->Prepare(target_->launch_context()).ok());
  EXPECT_EQ(prepared_, std::vector<float>(kCount, 10));
  ASSERT_TRUE(bound->Run(target_->launch_context()).ok());
  EXPECT_EQ(y_, std::vector<float>(kCount, 30));
  EXPECT_EQ(executable_->LaunchFacts()->size(), 1u);
}

}  // namespace
}  // namespace cudaforge
