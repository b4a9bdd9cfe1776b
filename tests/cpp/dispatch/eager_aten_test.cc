#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <chrono>
#include <thread>

#include "base/own_work.h"
#include "dispatch/eager.h"
#include "dispatch/kernel_on_trial.h"
#include "tests/cpp/dispatch/fake_region.h"

namespace cudaforge {
namespace {

using testing::EagerNeg;
using testing::LaunchLog;
using testing::NegWinner;
using testing::Region;

constexpr const char* kNeg = "aten::neg";

class EagerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    resolver_.SetLoader(nullptr);
    interceptor_.SetOnMiss(nullptr);
  }
  void TearDown() override {
    ASSERT_TRUE(interceptor_.SetOps({}).ok());
    interceptor_.SetOnMiss(nullptr);
    interceptor_.ResetStats();
  }

  // A kernel that returns -x + 1, unlike ATen.
  RegionEntry* Serve(std::vector<int64_t> sizes) {
    const Region region = EagerNeg(std::move(sizes));
    RegionEntry* entry = resolver_.Resolve(region.id, region.text, -1).value();
    resolver_.Install(entry, NegWinner(region.signature.inputs[0].numel(), 1, log_));
    return entry;
  }
  Json Stats() const { return interceptor_.Stats().at(kNeg); }

  Resolver& resolver_ = Resolver::Get();
  EagerInterceptor& interceptor_ = EagerInterceptor::Get();
  std::shared_ptr<LaunchLog> log_ = std::make_shared<LaunchLog>();
};

TEST_F(EagerTest, KnownCallIsServedByItsWinner) {
  Serve({3, 5});
  const at::Tensor x = at::randn({3, 5});
  ASSERT_TRUE(interceptor_.SetOps({kNeg}).ok());
  EXPECT_TRUE(at::equal(at::neg(x), at::zeros({3, 5}).sub(x))) << "the first one is PyTorch's";
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(at::allclose(at::neg(x), at::rsub(x, 1)));
  EXPECT_EQ(Stats(),
            Json::parse(R"({"calls": 3, "hits": 2, "fallbacks": 0, "misses": {"new": 1}})"));
  ASSERT_TRUE(interceptor_.SetOps({}).ok());
  EXPECT_TRUE(at::equal(at::neg(x), at::zeros({3, 5}).sub(x)));
  EXPECT_EQ(Stats()["calls"], 3);
}

TEST_F(EagerTest, AnOperatorHasOneName) {
  ASSERT_TRUE(interceptor_.SetOps({"aten::neg.default"}).ok());
  EXPECT_EQ(interceptor_.ops(), std::vector<std::string>{kNeg});
  ASSERT_TRUE(interceptor_.SetOps({kNeg, "aten::neg.default"}).ok());
  EXPECT_EQ(interceptor_.ops(), std::vector<std::string>{kNeg});
  at::neg(at::randn({3, 27}));
  EXPECT_EQ(Stats()["calls"], 1);
}

TEST_F(EagerTest, KernelForEagerCallsServesOnlyThem) {
  const Region region = EagerNeg({3, 15});
  RegionEntry* entry = resolver_.Resolve(region.id, region.text, -1).value();
  std::unique_ptr<Winner> kernel = NegWinner(45, 1, log_);
  kernel->compiled = false;
  resolver_.Install(entry, std::move(kernel));
  const at::Tensor x = at::randn({3, 15});
  ASSERT_TRUE(interceptor_.SetOps({kNeg}).ok());
  for (int i = 0; i < 2; ++i) at::neg(x);
  EXPECT_TRUE(at::allclose(at::neg(x), at::rsub(x, 1)));
  EXPECT_EQ(Stats()["hits"], 2);
  torch::jit::Stack stack = {c10::List<at::Tensor>({x}), region.id, region.text};
  RegionOperator().callBoxed(stack);
  EXPECT_TRUE(at::equal(stack[0].toTensorList().get(0), at::rsub(x, 0))) << "a graph runs ATen";
}

TEST_F(EagerTest, OtherCallsRunInPyTorch) {
  Serve({3, 6});
  ASSERT_TRUE(interceptor_.SetOps({kNeg}).ok());
  const at::Tensor x = at::randn({3, 6});
  at::neg(x);
  const std::vector<at::Tensor> others = {at::randn({6, 3}).t(), at::randn({3, 7}),
                                          x.to(at::kDouble)};
  for (const at::Tensor& other : others) {
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(at::equal(at::neg(other), at::zeros_like(other).sub(other)));
    }
  }
  EXPECT_EQ(Stats()["hits"], 0);
  EXPECT_EQ(log_->launches.load(), 0);
}

TEST_F(EagerTest, UnalignedDataAreServed) {
  Serve({3, 28});
  ASSERT_TRUE(interceptor_.SetOps({kNeg}).ok());
  at::neg(at::randn({3, 28}));
  for (int64_t offset = 0; offset < 4; ++offset) {
    const at::Tensor x = at::randn({84 + offset}).slice(0, offset).view({3, 28});
    EXPECT_TRUE(at::equal(at::neg(x), at::rsub(x, 1))) << offset;
  }
  EXPECT_EQ(Stats()["hits"], 4);
  const at::Tensor bytes = at::zeros({84 * 4 + 1}, at::kByte);
  const at::Tensor amid = at::from_blob(bytes.data_ptr<uint8_t>() + 1, {3, 28});
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(at::neg(amid), at::zeros({3, 28})));
  EXPECT_EQ(Stats()["hits"], 4);
}

TEST_F(EagerTest, OnMissIsCalledOnceAndMayMakeTheWinner) {
  int told = 0;
  interceptor_.SetOnMiss([&](const RegionEntry& entry) {
    ++told;
    EXPECT_EQ(entry.key, EagerNeg({3, 8}).signature.Key());
    at::neg(at::randn({3, 8}));  // an inner call, which is not looked up
    Serve({3, 8});
    return std::exception_ptr();
  });
  ASSERT_TRUE(interceptor_.SetOps({kNeg}).ok());
  const at::Tensor x = at::randn({3, 8});
  at::neg(x);
  EXPECT_TRUE(at::allclose(at::neg(x), at::rsub(x, 1)));
  EXPECT_EQ(told, 1);
  EXPECT_EQ(Stats()["misses"], Json::parse(R"({"new": 1})"));
}

TEST_F(EagerTest, ExceptionOfOnMissIsAWarning) {
  std::vector<std::string> warnings;
  resolver_.SetWarningSink([&](const std::string& warning) { warnings.push_back(warning); });
  interceptor_.SetOnMiss(
      [](const RegionEntry&) -> std::exception_ptr { throw std::runtime_error("no room"); });
  ASSERT_TRUE(interceptor_.SetOps({kNeg}).ok());
  const at::Tensor x = at::randn({3, 9});
  EXPECT_TRUE(at::equal(at::neg(x), at::zeros({3, 9}).sub(x)));
  resolver_.SetWarningSink(nullptr);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("no room"), std::string::npos);
}

TEST_F(EagerTest, OwnWorkRunsInPyTorch) {
  Serve({4, 5});
  const at::Tensor x = at::randn({4, 5});
  ASSERT_TRUE(interceptor_.SetOps({kNeg}).ok());
  at::neg(x);
  const OwnWork own_work;
  EXPECT_TRUE(at::equal(at::neg(x), at::zeros({4, 5}).sub(x)));
  EXPECT_EQ(Stats()["calls"], 1);
}

TEST_F(EagerTest, FailedLaunchFallsBackWithoutRetry) {
  Serve({4, 6});
  const at::Tensor x = at::randn({4, 6});
  ASSERT_TRUE(interceptor_.SetOps({kNeg}).ok());
  at::neg(x);
  int warnings = 0;
  resolver_.SetWarningSink([&warnings](const std::string&) { ++warnings; });
  log_->fail = true;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(at::neg(x), at::zeros({4, 6}).sub(x)));
  resolver_.SetWarningSink(nullptr);
  EXPECT_EQ(warnings, 1);
  EXPECT_EQ(log_->launches.load(), 1);
  EXPECT_EQ(Stats()["fallbacks"], 3) << "one that failed, two in quarantine";
}

TEST_F(EagerTest, ExceptionReturnedByOnMissIsThrown) {
  interceptor_.SetOnMiss(
      [](const RegionEntry&) { return std::make_exception_ptr(std::out_of_range("interrupted")); });
  ASSERT_TRUE(interceptor_.SetOps({kNeg}).ok());
  EXPECT_THROW(at::neg(at::randn({3, 10})), std::out_of_range);
}

TEST_F(EagerTest, NewOnMissGetsKnownCalls) {
  const at::Tensor x = at::randn({3, 11});
  ASSERT_TRUE(interceptor_.SetOps({kNeg}).ok());
  int told = 0;
  for (int i = 1; i <= 3; ++i) {
    interceptor_.SetOnMiss([&](const RegionEntry& entry) {
      EXPECT_EQ(entry.key, EagerNeg({3, 11}).signature.Key());
      ++told;
      return std::exception_ptr();
    });
    for (int call = 0; call < 3; ++call) at::neg(x);
    EXPECT_EQ(told, i);
  }
}

// Signatures do not include the default dtype, which many operators use for results of integers.
TEST_F(EagerTest, OtherDefaultDtypeRunsInPyTorch) {
  Serve({3, 12});
  const at::Tensor x = at::randn({3, 12});
  ASSERT_TRUE(interceptor_.SetOps({kNeg}).ok());
  c10::set_default_dtype(caffe2::TypeMeta::Make<double>());
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(at::neg(x), at::zeros_like(x).sub(x)));
  c10::set_default_dtype(caffe2::TypeMeta::Make<float>());
  EXPECT_EQ(Stats()["misses"], Json::parse(R"({"unsupported": 2})"));
}

// Another kernel of the same region, on trial in this thread: no other call gets it, and it is not
// counted.
TEST_F(EagerTest, KernelOnTrialServesOnlyOwnWork) {
  const Region region = EagerNeg({3, 13});
  RegionEntry* entry = resolver_.Resolve(region.id, region.text, -1).value();
  const at::Tensor x = at::randn({3, 13}), aten = at::zeros_like(x).sub(x);
  const auto by_region = [&] { return testing::CallRegion(region, {x})[0]; };
  ASSERT_TRUE(interceptor_.SetOps({kNeg}).ok());
  at::neg(x);
  const int64_t hits = entry->hits.load(), unserved = entry->unserved.load();
  {
    KernelOnTrial trial(entry, NegWinner(39, 1, log_));
    EXPECT_TRUE(at::equal(at::neg(x), aten));
    EXPECT_TRUE(at::equal(by_region(), aten)) << "the program's";
    {
      const OwnWork own_work;
      EXPECT_TRUE(at::allclose(by_region(), at::rsub(x, 1)));
      at::Tensor elsewhere;
      std::thread([&] {
        const OwnWork its_own;
        elsewhere = by_region();
      }).join();
      EXPECT_TRUE(at::equal(elsewhere, aten));
    }
    EXPECT_EQ(entry->hits.load(), hits);
    EXPECT_EQ(entry->unserved.load(), unserved + 2);
    EXPECT_EQ(entry->own_hits.load(), 1);
  }
  {
    const OwnWork own_work;
    EXPECT_TRUE(at::equal(by_region(), aten)) << "ended";
    KernelOnTrial(entry, NegWinner(39, 1, log_)).Promote();
  }
  EXPECT_TRUE(at::allclose(at::neg(x), at::rsub(x, 1)));
}

#if __has_include(<ATen/core/Dimname.h>)  // not in PyTorch 2.15
TEST_F(EagerTest, NamedTensorsRunInPyTorch) {
  Serve({6, 7});
  ASSERT_TRUE(interceptor_.SetOps({kNeg}).ok());
  at::Tensor x = at::randn({6, 7});
  at::neg(x);
  EXPECT_TRUE(at::allclose(at::neg(x), at::rsub(x, 1)));
  const at::Dimname name = at::Dimname::fromSymbol(at::Symbol::dimname("a"));
  x = x.refine_names({name, at::Dimname::wildcard()});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(at::neg(x).names()[0], name);
  EXPECT_EQ(Stats()["misses"]["unsupported"], 2);
}
#endif

TEST_F(EagerTest, PreviousOverrideIsCalledUntilUnloaded) {
  auto library = std::make_unique<torch::Library>(torch::Library::IMPL, "aten",
                                                  at::DispatchKey::CPU, __FILE__, __LINE__);
  library->impl("neg", torch::CppFunction::makeFromUnboxedFunction(
                           +[](const at::Tensor& x) { return at::rsub(x, 2); }));
  ASSERT_TRUE(interceptor_.SetOps({kNeg}).ok());
  const at::Tensor x = at::randn({7, 5}), aten = at::zeros({7, 5}).sub(x);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(at::allclose(at::neg(x), at::rsub(x, 2)));
  library.reset();
  EXPECT_THROW(at::neg(x), c10::Error);
  ASSERT_TRUE(interceptor_.SetOps({}).ok());
  EXPECT_TRUE(at::equal(at::neg(x), aten));
  ASSERT_TRUE(interceptor_.SetOps({kNeg}).ok());
  EXPECT_TRUE(at::equal(at::neg(x), aten));
}

// With complex numbers, which no region supports; as many of these are kept.
TEST_F(EagerTest, NumberOfKnownCallsIsLimited) {
  constexpr const char* kSin = "aten::sin";
  constexpr int64_t kMost = 32768;  // as the README says
  ASSERT_TRUE(interceptor_.SetOps({kSin}).ok());
  const at::Tensor x = at::zeros({1}, at::kComplexFloat);
  const auto call = [&](int64_t size) { at::sin(x.as_strided({size, 0}, {1, 1})); };
  for (int64_t size = 0; size < kMost + 3; ++size) call(size);
  for (int i = 0; i < 2; ++i) call(kMost - 1);
  call(kMost);
  EXPECT_EQ(interceptor_.Stats().at(kSin),
            Json::parse(R"({"calls": 32774, "hits": 0, "fallbacks": 0,
                            "misses": {"new": 32768, "too_many": 4, "unsupported": 2}})"));
}

TEST_F(EagerTest, RefusedOverloadChangesNothing) {
  ASSERT_TRUE(interceptor_.SetOps({kNeg}).ok());
  for (const char* op : {"aten::view", "aten::neg_", "aten::softmax.int", "aten::nothing",
                         "aten::bernoulli", "aten::neg.out", "prims::sum"}) {
    EXPECT_EQ(interceptor_.SetOps({"aten::mm", op}).code(), StatusCode::kUnsupported) << op;
    EXPECT_EQ(interceptor_.ops(), std::vector<std::string>{kNeg});
  }
}

TEST_F(EagerTest, ConcurrentCallsAndSetOps) {
  Serve({64, 64});
  const at::Tensor x = at::randn({64, 64});
  const at::Tensor aten = at::neg(x), ours = at::rsub(x, 1);
  std::atomic<bool> ended{false};
  std::atomic<int> wrong{0}, served{0}, plain{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      while (!ended) {
        const at::Tensor y = at::neg(x);
        if (at::allclose(y, ours)) {
          ++served;
        } else {
          ++(at::equal(y, aten) ? plain : wrong);
        }
      }
    });
  }
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(interceptor_.SetOps({kNeg, "aten::mm"}).ok());
    const auto come = [](const std::atomic<int>& results) {
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      const int enough = results + 8;
      while (results < enough && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::yield();
      }
      return results >= enough;
    };
    EXPECT_TRUE(come(served));
    ASSERT_TRUE(
        interceptor_
            .SetOps(i % 2 == 0 ? std::vector<std::string>{} : std::vector<std::string>{"aten::mm"})
            .ok());
    EXPECT_TRUE(come(plain));
  }
  ended = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace cudaforge
