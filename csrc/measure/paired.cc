#include "measure/paired.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "base/clock.h"
#include "base/text.h"

namespace cudaforge {
namespace {

constexpr int kWarmUpRounds = 2;
constexpr int kResamples = 1000;
constexpr int kRoundsBetweenChecks = 10;
constexpr double kLong = 2;       // medians
constexpr size_t kManyLong = 10;  // one in this many

// Sorts only as far as the median needs.
double MedianInPlace(std::vector<double>* values) {
  const auto middle = values->begin() + static_cast<std::ptrdiff_t>(values->size() / 2);
  std::nth_element(values->begin(), middle, values->end());
  if (values->size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values->begin(), middle)) / 2;
}

// Returns true if every interval against the first contestant is narrow enough.
bool PreciseEnough(const PairedTimes& times, double precision) {
  for (size_t i = 1; i < times.names.size(); ++i) {
    const RatioInterval ratio = times.Speedup(i, 0);
    if ((ratio.high - ratio.low) / 2 > precision * ratio.median) return false;
  }
  return true;
}

Result<double> TimeOne(const Contestant& contestant, const SampleClock& clock, int64_t sample) {
  auto ns = clock(sample, [&] { return contestant.run(sample); });
  if (!ns.ok()) {
    return Status(ns.status().code(), contestant.name + ": " + ns.status().message());
  }
  if (!std::isfinite(*ns) || *ns <= 0) {
    return Status::Unavailable(contestant.name + ": the clock returned " + Significant(*ns, 6) +
                               " ns");
  }
  return ns;
}

}  // namespace

double Median(std::vector<double> values) {
  CF_CHECK(!values.empty());
  return MedianInPlace(&values);
}

double PairedTimes::MedianNs(size_t contestant) const {
  CF_CHECK(contestant < ns.size());
  return Median(ns[contestant]);
}

RatioInterval PairedTimes::Speedup(size_t base, size_t contestant) const {
  CF_CHECK(base < ns.size() && contestant < ns.size() && rounds() > 0);
  std::vector<double> logs(rounds());
  for (size_t i = 0; i < logs.size(); ++i) logs[i] = std::log(ns[base][i] / ns[contestant][i]);
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<size_t> pick(0, logs.size() - 1);
  std::vector<double> medians(kResamples);
  std::vector<double> resample(logs.size());
  for (double& median : medians) {
    for (double& value : resample) value = logs[pick(random)];
    median = MedianInPlace(&resample);
  }
  std::sort(medians.begin(), medians.end());
  const auto percentile = [&](double p) {
    return std::exp(medians[static_cast<size_t>(std::lround(p * (kResamples - 1)))]);
  };
  return {percentile(0.025), std::exp(Median(logs)), percentile(0.975)};
}

bool PairedTimes::Interrupted() const {
  size_t samples = 0, long_ones = 0;
  for (size_t i = 0; i < ns.size() && !ns[i].empty(); ++i) {
    const double most = kLong * MedianNs(i);
    samples += ns[i].size();
    long_ones +=
        static_cast<size_t>(std::ranges::count_if(ns[i], [&](double t) { return t >= most; }));
  }
  return long_ones * kManyLong > samples;
}

Result<PairedTimes> TimePaired(const std::vector<Contestant>& contestants, const SampleClock& clock,
                               const PairedOptions& options) {
  CF_CHECK(!contestants.empty());
  CF_CHECK(1 <= options.min_samples && options.min_samples <= options.max_samples);
  PairedTimes times;
  times.seed = options.seed;
  for (const Contestant& contestant : contestants) times.names.push_back(contestant.name);
  times.ns.resize(contestants.size());

  std::mt19937_64 random(options.seed);
  std::vector<size_t> order(contestants.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const double start = SteadySeconds();
  for (int round = -kWarmUpRounds; round < options.max_samples; ++round) {
    // In a fixed order, each contestant would always run after the same one, with its caches and
    // clocks.
    std::shuffle(order.begin(), order.end(), random);
    for (size_t i : order) {
      CF_ASSIGN_OR_RETURN(const double ns,
                          TimeOne(contestants[i], clock, int64_t{round} + kWarmUpRounds));
      if (round >= 0) times.ns[i].push_back(ns);
    }
    const int done = round + 1;
    const bool check = done > 0 && done % kRoundsBetweenChecks == 0;
    if (check && options.decided && options.decided(times)) break;
    if (done < options.min_samples) continue;
    if (SteadySeconds() - start >= options.budget_s) break;
    if (check && PreciseEnough(times, options.precision)) break;
  }
  return times;
}

}  // namespace cudaforge
