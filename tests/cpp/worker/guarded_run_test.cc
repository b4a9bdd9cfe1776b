#include "worker/guarded_run.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/cpp/worker/fake_target.h"

namespace cudaforge {
namespace {

class GuardedRun : public ::testing::Test {
 protected:
  GuardedRunResult Run(FakeKernel kernel) {
    target_.kernel = std::move(kernel);
    const FakeExecutable executable(target_.kernel, target_.scratch);
    outputs_.assign(1, "");
    outputs_[0].assign(256, kUntouched);
    char* const places[] = {outputs_[0].data()};
    const std::string_view views[] = {inputs_[0]};
    const GuardedRunRequest request{&candidate_, &signature_, views, shifts_, plan_, 42, places};
    auto result = RunGuarded(target_, executable, request);
    EXPECT_TRUE(result.ok());
    return *std::move(result);
  }

  OpSignature signature_ = ReluSignature(64);
  Candidate candidate_ = CpuCandidate("", 1, "64", 1);
  std::vector<std::string> inputs_ = {std::string(256, 'i')};
  std::vector<int64_t> shifts_ = {0};
  static constexpr char kUntouched = 'u';
  std::vector<std::string> outputs_;
  RunPlan plan_{.poison = 0x5a};
  FakeTarget target_;
};

using Pointers = std::span<void* const>;

TEST_F(GuardedRun, AcceptsAndReturnsOutputs) {
  const auto result = Run([](Pointers in, Pointers out, Pointers) {
    std::memcpy(out[0], in[0], 256);
    return Status::Ok();
  });
  EXPECT_TRUE(result.verdict.accepted()) << result.verdict.message;
  EXPECT_EQ(outputs_, inputs_);
}

TEST_F(GuardedRun, OutputsAndScratchArePoisoned) {
  target_.scratch = {100, 0};
  const auto result = Run([](Pointers, Pointers, Pointers scratch) {
    EXPECT_EQ(scratch.size(), 2u);
    EXPECT_EQ(std::memcmp(scratch[0], std::string(100, '\x5a').data(), 100), 0);
    return Status::Ok();
  });
  EXPECT_EQ(outputs_[0], std::string(256, '\x5a'));
}

TEST_F(GuardedRun, WritesOutsideAreFoundOnBothSides) {
  for (int64_t at : {int64_t{256}, int64_t{-1}, int64_t{256 + 65536}, int64_t{-65536}}) {
    for (int which = 0; which < 3; ++which) {
      target_.scratch = {256};
      const auto result = Run([&](Pointers in, Pointers out, Pointers scratch) {
        void* base = which == 0 ? in[0] : which == 1 ? out[0] : scratch[0];
        static_cast<char*>(base)[at] ^= 1;
        return Status::Ok();
      });
      EXPECT_EQ(result.verdict.kind, VerdictKind::kMemoryFault);
      EXPECT_EQ(result.verdict.evidence["first_byte"], at);
      EXPECT_EQ(result.verdict.evidence["guard_bytes_hit"], 1);
      EXPECT_EQ(outputs_[0], std::string(256, kUntouched));
    }
  }
}

// A kernel that trusts what is there does its work once, and its answer is spoilt before the second
// run.
TEST_F(GuardedRun, ASecondRunFindsSpoiltOutputs) {
  int runs = 0;
  const auto trusting = [&](Pointers in, Pointers out, Pointers) {
    if (++runs == 1) std::memcpy(out[0], in[0], 256);
    return Status::Ok();
  };
  EXPECT_TRUE(Run(trusting).verdict.accepted());
  EXPECT_EQ(outputs_, inputs_);
  plan_.again = true;
  runs = 0;
  EXPECT_TRUE(Run(trusting).verdict.accepted());
  EXPECT_EQ(runs, 2);
  EXPECT_NE(outputs_, inputs_);
  const auto right = [](Pointers in, Pointers out, Pointers) {
    std::memcpy(out[0], in[0], 256);
    return Status::Ok();
  };
  EXPECT_TRUE(Run(right).verdict.accepted());
  EXPECT_EQ(outputs_, inputs_);
}

TEST_F(GuardedRun, ChangedInput) {
  const auto result = Run([](Pointers in, Pointers, Pointers) {
    static_cast<char*>(in[0])[255] ^= 1;
    return Status::Ok();
  });
  EXPECT_EQ(result.verdict.kind, VerdictKind::kModifiedInput);
}

TEST_F(GuardedRun, PlacementFollowsShiftAndConstraints) {
  uintptr_t at = 0;
  const auto note = [&](Pointers in, Pointers, Pointers) {
    at = reinterpret_cast<uintptr_t>(in[0]);
    return Status::Ok();
  };
  shifts_ = {4};
  Run(note);
  EXPECT_EQ(at % 256, 4u);
  candidate_.constraints = {{Constraint::Kind::kAligned, 0, 16}};
  Run(note);
  EXPECT_EQ(at % 256, 16u);
  candidate_.constraints = {{Constraint::Kind::kAligned, 0, 1024}};
  Run(note);
  EXPECT_EQ(at % 1024, 0u);
}

TEST_F(GuardedRun, LaunchError) {
  const auto result =
      Run([](Pointers, Pointers, Pointers) { return Status::Internal("too many threads"); });
  EXPECT_EQ(result.verdict.kind, VerdictKind::kLaunchError);
  EXPECT_TRUE(result.device_error);
}

TEST_F(GuardedRun, AsynchronousMemoryErrorIsAMemoryFault) {
  target_.on_synchronize =
      Status(StatusCode::kMemoryFault, "an illegal memory access was encountered");
  const auto result = Run([](Pointers, Pointers, Pointers) { return Status::Ok(); });
  EXPECT_EQ(result.verdict.kind, VerdictKind::kMemoryFault);
  EXPECT_TRUE(result.device_error);
}

// A kernel that runs past both ends of its input and its output leaves no trace where the guards
// are alike.
TEST_F(GuardedRun, GuardsDiffer) {
  const auto result = Run([](Pointers in, Pointers out, Pointers) {
    std::memcpy(static_cast<char*>(out[0]) - 4096, static_cast<char*>(in[0]) - 4096, 8192 + 256);
    return Status::Ok();
  });
  EXPECT_EQ(result.verdict.kind, VerdictKind::kMemoryFault);
  EXPECT_GT(result.verdict.evidence["guard_bytes_hit"].get<int>(), 8000);
}

TEST_F(GuardedRun, Times) {
  int launches = 0;
  const FakeExecutable executable(
      [&launches](Pointers, Pointers, Pointers) {
        ++launches;
        return Status::Ok();
      },
      {});
  const std::string_view views[] = {inputs_[0]};
  const GuardedRunRequest request{&candidate_, &signature_, views, shifts_, {}, 0, {}};
  const auto launched = [&](const TimingPlan& plan) {
    FakeTarget fresh;  // 10 ns, 20 ns, 30 ns, ...
    launches = 0;
    EXPECT_TRUE(TimeRuns(fresh, executable, request, plan).ok());
    return launches;
  };
  EXPECT_EQ(*TimeRuns(target_, executable, request, {.samples = 5}), 30);
  EXPECT_FALSE(TimeRuns(target_, executable, request, {.samples = 0}).ok());
  EXPECT_EQ(launched({.samples = 9}), 9);
  EXPECT_EQ(launched({.samples = 9, .least = 3, .total_ns = 50}), 3);
  EXPECT_EQ(launched({.samples = 9, .least = 3, .total_ns = 100}), 4);
  EXPECT_EQ(launched({.samples = 9, .abandon_ns = 9}), 2);
  EXPECT_EQ(launched({.samples = 9, .abandon_ns = 10}), 9);
}

TEST_F(GuardedRun, ProfilesOnBuffersOfItsOwn) {
  int calls = 0;
  target_.kernel = [&](Pointers in, Pointers out, Pointers) {
    ++calls;
    EXPECT_EQ(std::memcmp(in[0], inputs_[0].data(), 256), 0) << "the same inputs each time";
    std::memcpy(out[0], in[0], 256);
    return Status::Ok();
  };
  const FakeExecutable executable(target_.kernel, target_.scratch);
  const std::string_view views[] = {inputs_[0]};
  const GuardedRunRequest request{&candidate_, &signature_, views, shifts_, plan_, 42, {}};
  const auto profile = ProfileRuns(target_, executable, request, 2);
  ASSERT_TRUE(profile.ok()) << profile.status().ToString();
  EXPECT_EQ((*profile)["tier"], 2);
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace cudaforge
