#include "measure/paired.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace cudaforge {
namespace {

// A simulated device: contestants have fixed times, and the clock adds noise and drift.
class PaperDevice {
 public:
  explicit PaperDevice(uint64_t seed) : random_(seed) {}

  Contestant Make(const std::string& name, double ns) {
    return {name, [this, ns, name](int64_t sample) {
              ns_ = ns;
              calls_.push_back({name, sample});
              return Status::Ok();
            }};
  }
  SampleClock Clock(double noise, double drift_per_call = 0, double outlier_share = 0) {
    return [=, this](int64_t, const std::function<Status()>& work) -> Result<double> {
      CF_RETURN_IF_ERROR(work());
      double ns = ns_ * std::exp(noise * normal_(random_)) * (1 + drift_per_call * ++count_);
      if (uniform_(random_) < outlier_share) ns *= 50;
      return ns;
    };
  }
  const std::vector<std::pair<std::string, int64_t>>& calls() const { return calls_; }

 private:
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_;
  double ns_ = 0;
  double count_ = 0;
  std::vector<std::pair<std::string, int64_t>> calls_;
};

TEST(Median, OddEvenAndEmpty) {
  EXPECT_EQ(Median({3, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(Median({7}), 7);
  EXPECT_THROW(Median({}), CheckError);
}

TEST(PairedTimes, InterruptedWhereManySamplesAreLong) {
  const auto interrupted = [](double share) {
    PaperDevice device(3);
    const auto times =
        TimePaired({device.Make("new", 1000), device.Make("old", 1500)},
                   device.Clock(0.05, 0, share), {.min_samples = 300, .budget_s = 0});
    return times.value().Interrupted();
  };
  EXPECT_FALSE(interrupted(0));
  EXPECT_FALSE(interrupted(0.03));
  EXPECT_TRUE(interrupted(0.2));
  EXPECT_FALSE(PairedTimes().Interrupted());
}

TEST(TimePaired, FindsTheSpeedup) {
  PaperDevice device(1);
  auto times = TimePaired({device.Make("new", 1000), device.Make("old", 1500)}, device.Clock(0.05),
                          {.precision = 0});
  ASSERT_TRUE(times.ok());
  RatioInterval speedup = times->Speedup(1, 0);
  EXPECT_LT(speedup.low, 1.5);
  EXPECT_GT(speedup.high, 1.5);
  EXPECT_GT(speedup.low, 1.45);
  EXPECT_LT(speedup.high, 1.55);
  EXPECT_LE(speedup.low, speedup.median);
  EXPECT_LE(speedup.median, speedup.high);
  EXPECT_NEAR(times->MedianNs(0), 1000, 30);
  const RatioInterval inverse = times->Speedup(0, 1);
  EXPECT_NEAR(inverse.median, 1 / speedup.median, 1e-9);
}

// The interval of equal contestants contains 1 in about 95 of 100 experiments.
TEST(TimePaired, EqualsAreEqual) {
  int contains = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    PaperDevice device(seed);
    auto times = TimePaired({device.Make("a", 1000), device.Make("a again", 1000)},
                            device.Clock(0.1), {.max_samples = 30, .seed = seed});
    ASSERT_TRUE(times.ok());
    const RatioInterval ratio = times->Speedup(1, 0);
    if (ratio.low <= 1 && 1 <= ratio.high) ++contains;
  }
  EXPECT_GE(contains, 180);
  EXPECT_LT(contains, 200);
}

TEST(TimePaired, DriftAffectsAllEqually) {
  PaperDevice device(3);
  auto times = TimePaired({device.Make("a", 1000), device.Make("b", 1000)},
                          device.Clock(0.01, 0.01), {.precision = 0});
  ASSERT_TRUE(times.ok());
  // The device became four times slower. Timed one after the other, b would have lost.
  EXPECT_GT(times->ns[0].back(), 3 * times->ns[0].front());
  const RatioInterval ratio = times->Speedup(1, 0);
  EXPECT_LE(ratio.low, 1.003);
  EXPECT_GE(ratio.high, 0.997);
  EXPECT_LT(ratio.high - ratio.low, 0.02);
}

TEST(TimePaired, OutliersDoNotMoveTheMedian) {
  PaperDevice device(4);
  auto times = TimePaired({device.Make("a", 1000), device.Make("b", 1200)},
                          device.Clock(0.01, 0, 0.1), {.precision = 0});
  ASSERT_TRUE(times.ok());
  EXPECT_NEAR(times->Speedup(1, 0).median, 1.2, 0.01);
  EXPECT_NEAR(times->MedianNs(0), 1000, 10);
}

TEST(TimePaired, OrderIsRandomAndSamplesAreFresh) {
  PaperDevice device(5);
  auto times = TimePaired({device.Make("a", 1), device.Make("b", 1), device.Make("c", 1)},
                          device.Clock(0.1), {.min_samples = 60, .max_samples = 60});
  ASSERT_TRUE(times.ok());
  EXPECT_EQ(times->rounds(), 60u);
  const auto& calls = device.calls();
  ASSERT_EQ(calls.size(), 3u * 62);
  int a_first = 0;
  for (size_t i = 0; i < calls.size(); i += 3) {
    if (calls[i].first == "a") ++a_first;
    // One round: three contestants, one sample number, never seen before.
    EXPECT_NE(calls[i].first, calls[i + 1].first);
    EXPECT_NE(calls[i].first, calls[i + 2].first);
    for (size_t k = i; k < i + 3; ++k) EXPECT_EQ(calls[k].second, static_cast<int64_t>(i / 3));
  }
  EXPECT_GT(a_first, 8);
  EXPECT_LT(a_first, 35);
}

TEST(TimePaired, StopsWhenPreciseOrSpent) {
  PaperDevice device(6);
  std::vector<Contestant> two = {device.Make("a", 1000), device.Make("b", 1000)};
  EXPECT_EQ(TimePaired(two, device.Clock(1e-4), {})->rounds(), 30u);
  EXPECT_EQ(TimePaired(two, device.Clock(1.0), {.budget_s = 0})->rounds(), 30u);
  EXPECT_EQ(TimePaired(two, device.Clock(1.0), {.max_samples = 50})->rounds(), 50u);
}

TEST(TimePaired, EqualTimesGiveEqualIntervals) {
  RatioInterval first;
  for (int i = 0; i < 2; ++i) {
    PaperDevice device(7);
    auto times = TimePaired({device.Make("a", 1000), device.Make("b", 1100)}, device.Clock(0.1),
                            {.max_samples = 40, .precision = 0, .seed = 9});
    const RatioInterval ratio = times->Speedup(1, 0);
    if (i == 0) first = ratio;
    EXPECT_EQ(ratio.low, first.low);
    EXPECT_EQ(ratio.high, first.high);
  }
}

TEST(TimePaired, ErrorsNameTheContestant) {
  PaperDevice device(8);
  Contestant broken = {"broken", [](int64_t) { return Status::Internal("out of paper"); }};
  auto times = TimePaired({device.Make("a", 1), broken}, device.Clock(0), {});
  EXPECT_EQ(times.status().code(), StatusCode::kInternal);
  EXPECT_EQ(times.status().message(), "broken: out of paper");
  for (double ns : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    auto clock = [ns](int64_t, const std::function<Status()>&) -> Result<double> { return ns; };
    EXPECT_EQ(TimePaired({device.Make("a", 1)}, clock, {}).status().code(),
              StatusCode::kUnavailable);
  }
  EXPECT_THROW((void)TimePaired({}, device.Clock(0), {}), CheckError);
  EXPECT_THROW((void)TimePaired({device.Make("a", 1)}, device.Clock(0), {.min_samples = 0}),
               CheckError);
}

}  // namespace
}  // namespace cudaforge
