// Kept forms of frozen weights, with a real kernel on the CPU: y = x p, with p = 2 w prepared. ATen
// computes x w.
#include <gtest/gtest.h>

#include <thread>

#include "dispatch/prepared_forms.h"
#include "tests/cpp/dispatch/fake_region.h"
#include "tests/cpp/target/prepared_kernel.h"

namespace cudaforge {
namespace {

using testing::CallRegion;
using testing::LaunchLog;
using testing::Region;

class PreparedFormsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    target_ = MakeCpuTarget().value().release();
    const CompileResult compiled = target_->Compile(PreparedMul().source, 60'000);
    ASSERT_TRUE(compiled.ok) << compiled.log;
    *binary_ = compiled.binary;
  }

  // A region of its own for each test: forms and kernels live as long as the process.
  void SetUp() override {
    static int64_t last = 1000;
    count_ = ++last;
    region_ = testing::Name(NormalizeAten(PreparedMulSignature(count_)).value());
    ASSERT_TRUE(region_.signature.inputs[1].frozen);
    entry_ = Resolver::Get().Resolve(region_.id, region_.text, 0).value();
    auto winner = std::make_unique<Winner>();
    winner->executable = target_->Load(*binary_, PreparedMul(), region_.signature).value();
    Resolver::Get().Install(entry_, std::move(winner));
    PreparedForms::Get().SetLimit(int64_t{1} << 30);
    PreparedForms::Get().ResetStats();
  }

  at::Tensor Full(double value) const { return at::full({count_}, value, at::kFloat); }
  // The value of all elements of the result for x = 3.
  double Call(const at::Tensor& w) const {
    const at::Tensor y = CallRegion(region_, {Full(3), w}).at(0);
    EXPECT_TRUE(at::equal(y, y[0].expand_as(y)));
    return y[0].item<double>();
  }
  static int64_t Stat(const char* name) {
    return PreparedForms::Get().Stats().at(name).get<int64_t>();
  }
  // Changes the values, not the version counter.
  static void SetSilently(const at::Tensor& w, float value) {
    std::fill_n(w.data_ptr<float>(), w.numel(), value);
  }

  static inline Target* target_ = nullptr;
  static inline std::string* binary_ = new std::string;
  int64_t count_ = 0;
  Region region_;
  RegionEntry* entry_ = nullptr;
};

TEST_F(PreparedFormsTest, KeepsTheForm) {
  const at::Tensor w = Full(5);
  EXPECT_EQ(Call(w), 30);
  SetSilently(w, 7);
  EXPECT_EQ(Call(w), 30);
  EXPECT_EQ(Stat("made"), 1);
  EXPECT_EQ(Stat("per_call"), 0);
  EXPECT_GE(PreparedForms::Get().WeightsChanged().value(), 1);
  EXPECT_EQ(Call(w), 42);
}

TEST_F(PreparedFormsTest, ComparesVersionCounters) {
  const at::Tensor w = Full(5);
  EXPECT_EQ(Call(w), 30);
  w.fill_(7);
  EXPECT_EQ(Call(w), 42);
  EXPECT_EQ(Call(w), 42);
  EXPECT_EQ(Stat("made"), 2);
}

TEST_F(PreparedFormsTest, EachWeightHasItsForm) {
  const at::Tensor a = Full(5), b = Full(6);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Call(a), 30);
    EXPECT_EQ(Call(b), 36);
  }
  EXPECT_EQ(Stat("made"), 2);
}

TEST_F(PreparedFormsTest, ViewsShareTheForm) {
  const at::Tensor both = at::cat({Full(5), Full(6)});
  EXPECT_EQ(Call(both.slice(0, 0, count_)), 30);
  EXPECT_EQ(Call(both.slice(0, count_)), 36);
  EXPECT_EQ(Call(both.slice(0, 0, count_)), 30);
  EXPECT_EQ(Stat("made"), 2);
}

TEST_F(PreparedFormsTest, FreesFormsOfDeadWeights) {
  PreparedForms::Get().WeightsChanged().value();  // frees those of other tests
  const int64_t kept = Stat("kept"), bytes = Stat("bytes");
  at::Tensor w = Full(5);
  EXPECT_EQ(Call(w), 30);
  EXPECT_EQ(Stat("kept"), kept + 1);
  EXPECT_EQ(Stat("bytes"), bytes + (count_ * 4 + 255) / 256 * 256);
  // A new tensor at the same address is another weight.
  const void* const address = w.data_ptr();
  const at::Tensor memory = w.alias();
  w = at::from_blob(memory.data_ptr(), {count_}, at::kFloat);
  ASSERT_EQ(w.data_ptr(), address);
  SetSilently(w, 7);
  EXPECT_EQ(Call(w), 42);
  w.reset();
  PreparedForms::Get().WeightsChanged().value();
  EXPECT_EQ(Stat("kept"), kept);
  EXPECT_EQ(Stat("bytes"), bytes);
}

TEST_F(PreparedFormsTest, PreparesInEachCallWhatDoesNotFit) {
  PreparedForms::Get().WeightsChanged().value();
  PreparedForms::Get().SetLimit(Stat("bytes") + (count_ * 4 + 255) / 256 * 256);
  const at::Tensor first = Full(5), second = Full(6);
  EXPECT_EQ(Call(first), 30);
  EXPECT_EQ(Call(second), 36);
  SetSilently(first, 7);
  SetSilently(second, 8);
  EXPECT_EQ(Call(first), 30);
  EXPECT_EQ(Call(second), 48);
  EXPECT_EQ(Stat("made"), 1);
  EXPECT_EQ(Stat("per_call"), 2);
}

TEST_F(PreparedFormsTest, GivesUpOnCopiesThatAreUsedOnce) {
  for (int i = 0; i < 40; ++i) EXPECT_EQ(Call(Full(5)), 30);
  EXPECT_LT(Stat("made"), 25);
  EXPECT_EQ(Stat("made") + Stat("per_call"), 40);
}

TEST_F(PreparedFormsTest, InferenceTensorsHaveNoVersions) {
  const c10::InferenceMode mode;
  const at::Tensor w = Full(5);
  EXPECT_EQ(Call(w), 30);
  EXPECT_EQ(Call(w), 30);
  EXPECT_EQ(Stat("made"), 1);
}

TEST_F(PreparedFormsTest, ThreadsShareTheForms) {
  std::vector<at::Tensor> weights;
  for (int i = 0; i < 4; ++i) weights.push_back(Full(i));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const c10::InferenceMode mode;
      for (int i = 0; i < 200; ++i) {
        if (Call(weights[static_cast<size_t>(i % 4)]) != 6 * (i % 4)) ++wrong;
        if (i % 50 == 0 && !PreparedForms::Get().WeightsChanged().ok()) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(entry_->hits.load(), 800);
}

// Prepares nothing and fails.
class FailingExecutable : public testing::NegExecutable {
 public:
  explicit FailingExecutable(int64_t count)
      : NegExecutable(count, 0, std::make_shared<LaunchLog>(), {1024}) {
    prepared_count_ = 1;
  }
  Status PrepareOperands(std::span<void* const>, std::span<void* const>,
                         const LaunchContext&) const override {
    return Status::Internal("the fake fails");
  }
};

TEST_F(PreparedFormsTest, FailuresLeaveTheCallToAten) {
  auto winner = std::make_unique<Winner>();
  winner->executable = std::make_unique<FailingExecutable>(count_);
  Resolver::Get().Install(entry_, std::move(winner));
  const Json before = Resolver::Get().Stats()["fallbacks"];
  EXPECT_EQ(Call(Full(5)), 15);
  EXPECT_TRUE(entry_->quarantined.load());
  EXPECT_EQ(Resolver::Get().Stats()["fallbacks"].value("launch_error", 0),
            before.value("launch_error", 0) + 1);
}

}  // namespace
}  // namespace cudaforge
