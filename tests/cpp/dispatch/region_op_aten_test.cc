#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <thread>

#include "dispatch/region_op.h"
#include "signature/aten_numerics.h"
#include "tests/cpp/dispatch/fake_region.h"

namespace cudaforge {
namespace {

using testing::CallRegion;
using testing::LaunchLog;
using testing::NegRegion;
using testing::NegWinner;
using testing::Region;

class RegionOpTest : public ::testing::Test {
 protected:
  void SetUp() override {
    resolver_.SetLoader(nullptr);
    resolver_.SetWarningSink([this](const std::string& warning) { warnings_.push_back(warning); });
    resolver_.ResetStats();
  }
  void TearDown() override { resolver_.SetWarningSink(nullptr); }

  // A region with a winner that returns -x + 1, unlike ATen.
  RegionEntry* Served(const Region& region, std::vector<int64_t> scratch = {},
                      std::vector<Constraint> constraints = {}) {
    RegionEntry* entry = resolver_.Resolve(region.id, region.text, -1).value();
    resolver_.Install(entry, NegWinner(region.signature.inputs[0].numel(), 1, log_,
                                       std::move(scratch), std::move(constraints)));
    return entry;
  }

  int64_t FallbackCount(const char* reason) {
    return resolver_.Stats()["fallbacks"].value(reason, int64_t{0});
  }

  Resolver& resolver_ = Resolver::Get();
  std::shared_ptr<LaunchLog> log_ = std::make_shared<LaunchLog>();
  std::vector<std::string> warnings_;
};

TEST_F(RegionOpTest, HitLaunchesTheWinner) {
  const Region region = NegRegion({4, 5});
  RegionEntry* entry = Served(region, {1000, 3});
  const at::Tensor x = at::randn({4, 5});
  const auto outputs = CallRegion(region, {x});
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_TRUE(at::equal(outputs[0], -x + 1));
  EXPECT_TRUE(log_->scratch_ok);
  EXPECT_EQ(entry->hits.load(), 1);
  EXPECT_EQ(entry->unserved.load(), 0);
}

TEST_F(RegionOpTest, LargeInputsAreSplitOverThreads) {
  const Region region = NegRegion({1 << 20});
  Served(region);
  const at::Tensor x = at::randn({1 << 20});
  EXPECT_TRUE(at::equal(CallRegion(region, {x})[0], -x + 1));
}

TEST_F(RegionOpTest, KernelIsServedOnlyUnderItsSettings) {
  at::Context& context = at::globalContext();
  const bool before = context.allowTF32CuDNN(at::Float32Op::CONV);
  context.setAllowTF32CuDNN(true);
  Region region = NegRegion({4, 51});
  region.signature.numerics = NumericsInForce({"aten::convolution"});
  region = testing::Name(region.signature);
  RegionEntry* entry = Served(region);
  const at::Tensor x = at::randn({4, 51});
  EXPECT_TRUE(at::equal(CallRegion(region, {x})[0], -x + 1));
  context.setAllowTF32CuDNN(false);
  EXPECT_TRUE(at::equal(CallRegion(region, {x})[0], -x));
  context.setAllowTF32CuDNN(before);
  EXPECT_EQ(entry->hits.load(), 1);
  EXPECT_EQ(FallbackCount("numerics"), 1);
}

TEST_F(RegionOpTest, MissRunsAten) {
  const Region region = NegRegion({4, 6});
  const at::Tensor x = at::randn({4, 6});
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(CallRegion(region, {x})[0], -x));
  EXPECT_EQ(resolver_.Find(region.id, -1)->unserved.load(), 2);
  EXPECT_EQ(log_->launches.load(), 0);
}

TEST_F(RegionOpTest, FirstCallRunsTheLoader) {
  const Region region = NegRegion({4, 7});
  resolver_.SetLoader([&](const RegionEntry&) -> Result<std::unique_ptr<Winner>> {
    return NegWinner(28, 1, log_);
  });
  const at::Tensor x = at::randn({4, 7});
  EXPECT_TRUE(at::equal(CallRegion(region, {x})[0], -x + 1));
}

TEST_F(RegionOpTest, OutOfContractFallsBack) {
  const Region region = NegRegion({4, 8}, 16);
  RegionEntry* entry = Served(region, {}, {{Constraint::Kind::kAligned, 0, 32}});
  const at::Tensor strided = at::randn({8, 4}).t();
  const auto outputs = CallRegion(region, {strided});
  EXPECT_TRUE(at::equal(outputs[0], -strided));
  EXPECT_TRUE(outputs[0].is_contiguous());
  EXPECT_EQ(FallbackCount("strides"), 1);

  const at::Tensor shifted = at::randn({36}).narrow(0, 4, 32).view({4, 8});  // 16-byte aligned
  EXPECT_TRUE(at::equal(CallRegion(region, {shifted})[0], -shifted));
  EXPECT_EQ(FallbackCount("alignment"), 1);
  EXPECT_EQ(log_->launches.load(), 0);
  EXPECT_EQ(entry->fallbacks.load(), 2);
  EXPECT_EQ(entry->hits.load(), 0);
}

// As on a GPU, where signatures include the alignment of aligned inputs.
TEST_F(RegionOpTest, UnalignedInputUsesTheUnalignedKernel) {
  Region region = NegRegion({4, 13});
  region.signature.inputs[0].alignment = 16;
  region = testing::Name(region.signature);
  RegionEntry* entry = Served(region);
  std::vector<std::string> told;
  resolver_.SetOnUnaligned([&](const RegionEntry& other) { told.push_back(other.key); });
  const at::Tensor shifted = at::randn({53}).slice(0, 1).view({4, 13});
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(CallRegion(region, {shifted})[0], -shifted));
  EXPECT_EQ(FallbackCount("alignment"), 2);
  const Region unaligned = NegRegion({4, 13});
  EXPECT_EQ(told, std::vector<std::string>{unaligned.signature.Key()});

  RegionEntry* other = Served(unaligned);
  EXPECT_TRUE(at::equal(CallRegion(region, {shifted})[0], -shifted + 1));
  EXPECT_EQ(other->hits.load(), 1);
  EXPECT_EQ(entry->hits.load(), 0);
  EXPECT_EQ(FallbackCount("alignment"), 2);
  const at::Tensor aligned = at::randn({4, 13});
  EXPECT_TRUE(at::equal(CallRegion(region, {aligned})[0], -aligned + 1));
  EXPECT_EQ(entry->hits.load(), 1);
  resolver_.SetOnUnaligned(nullptr);
}

TEST_F(RegionOpTest, SizeOneDimensionsMayHaveAnyStride) {
  const Region region = NegRegion({1, 9});
  RegionEntry* entry = Served(region);
  const at::Tensor x = at::randn({9}).as_strided({1, 9}, {77, 1});
  EXPECT_TRUE(at::equal(CallRegion(region, {x})[0], -x + 1));
  EXPECT_EQ(entry->hits.load(), 1);
}

TEST_F(RegionOpTest, OtherInputsAreAnError) {
  const Region region = NegRegion({4, 10});
  Served(region);
  const at::Tensor x = at::randn({4, 10});
  EXPECT_THROW(CallRegion(region, {at::randn({4, 11})}), c10::Error);
  EXPECT_THROW(CallRegion(region, {x.to(at::kDouble)}), c10::Error);
  EXPECT_THROW(CallRegion(region, {x, x}), c10::Error);
  EXPECT_THROW(CallRegion(RegionOperator(), {x}, region.id ^ 1, region.text), c10::Error);
  EXPECT_EQ(log_->launches.load(), 0);
}

TEST_F(RegionOpTest, LaunchErrorFallsBackAndQuarantines) {
  const Region region = NegRegion({4, 12});
  RegionEntry* entry = Served(region);
  log_->fail = true;
  const at::Tensor x = at::randn({4, 12});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(CallRegion(region, {x})[0], -x));
  EXPECT_EQ(log_->launches.load(), 1);
  EXPECT_TRUE(entry->quarantined.load());
  EXPECT_EQ(FallbackCount("launch_error"), 1);
  EXPECT_EQ(FallbackCount("quarantined"), 2);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("the fake fails"), std::string::npos);
}

TEST_F(RegionOpTest, WithoutMemoryForScratchAtenRuns) {
  const Region region = NegRegion({4, 13});
  RegionEntry* entry = Served(region, {int64_t{1} << 60});
  const at::Tensor x = at::randn({4, 13});
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(CallRegion(region, {x})[0], -x));
  EXPECT_EQ(log_->launches.load(), 0);
  EXPECT_FALSE(entry->quarantined.load());
  EXPECT_EQ(FallbackCount("no_memory"), 2);
  ASSERT_EQ(warnings_.size(), 2u);
  EXPECT_NE(warnings_[0].find("1152921504606846976 bytes of scratch"), std::string::npos);
  EXPECT_NE(warnings_[0].find("DefaultCPUAllocator: "), std::string::npos)
      << "the allocator's words";
  EXPECT_EQ(warnings_[0].find('\n'), std::string::npos);
}

TEST_F(RegionOpTest, IsNotDifferentiable) {
  const Region region = NegRegion({4, 13});
  Served(region);
  const at::Tensor x = at::randn({4, 13}).requires_grad_();
  try {
    CallRegion(region, {x});
    ADD_FAILURE() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("not differentiable"), std::string::npos);
  }
  c10::NoGradGuard no_grad;
  const at::Tensor y = CallRegion(region, {x})[0];
  EXPECT_FALSE(y.requires_grad());
}

TEST_F(RegionOpTest, InferenceMode) {
  const Region region = NegRegion({4, 14});
  Served(region);
  c10::InferenceMode guard;
  const at::Tensor x = at::randn({4, 14});
  const at::Tensor y = CallRegion(region, {x})[0];
  EXPECT_TRUE(y.is_inference());
  EXPECT_TRUE(at::equal(y, -x + 1));
}

TEST_F(RegionOpTest, EmptyInputs) {
  const Region region = NegRegion({0, 3});
  RegionEntry* entry = Served(region);
  EXPECT_EQ(CallRegion(region, {at::empty({0, 3})})[0].sizes(), at::IntArrayRef({0, 3}));
  EXPECT_EQ(entry->hits.load(), 1);
}

TEST_F(RegionOpTest, MetaGivesOutputsFromTheSignature) {
  const Region region = NegRegion({4, 15});
  const at::Tensor x = at::empty({4, 15}, at::device(at::kMeta));
  for (int i = 0; i < 2; ++i) {
    const at::Tensor y = CallRegion(region, {x})[0];
    EXPECT_TRUE(y.is_meta());
    EXPECT_EQ(y.sizes(), x.sizes());
    EXPECT_EQ(y.scalar_type(), at::kFloat);
  }
  EXPECT_EQ(resolver_.Find(region.id, -1), nullptr);
  EXPECT_THROW(CallRegion(region, {x, x}), c10::Error);
  for (const std::string& other : {NegRegion({4, 16}).text, std::string("[]")}) {
    EXPECT_THROW(CallRegion(RegionOperator(), {x}, region.id, other), c10::Error);
  }
}

TEST_F(RegionOpTest, ServesWhileWinnersAreReplaced) {
  const Region region = NegRegion({4, 17});
  RegionEntry* entry = Served(region);
  const at::Tensor x = at::randn({4, 17});
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        if (t < 2) {
          resolver_.Install(entry, i % 3 == 0 ? nullptr : NegWinner(68, 1, log_));
          continue;
        }
        const at::Tensor y = CallRegion(region, {x})[0];
        if (!at::equal(y, -x + 1) && !at::equal(y, -x)) wrong.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(entry->hits.load() + entry->unserved.load(), 600);
}

TEST(GpuRegionOpTest, MissOnCudaRunsAten) {
  if (!at::hasCUDA() || !c10::impl::hasDeviceGuardImpl(at::kCUDA) ||
      c10::impl::VirtualGuardImpl(at::kCUDA).deviceCount() == 0) {
    GTEST_SKIP() << "needs a GPU";
  }
  Region region = NegRegion({4, 18});
  region.signature.device = DeviceType::kCuda;
  region = testing::Name(region.signature);
  const at::Tensor x = at::randn({4, 18}, at::device(at::kCUDA));
  EXPECT_TRUE(at::equal(CallRegion(region, {x})[0], -x));
}

}  // namespace
}  // namespace cudaforge
