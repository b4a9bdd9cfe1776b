// Paired timing: contestants run interleaved, sample by sample, so that drift affects all equally.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"

namespace cudaforge {

struct Contestant {
  std::string name;
  std::function<Status(int64_t sample)> run;  // one call of the work; `sample` selects inputs
};

// A device's clock: returns the nanoseconds of one call of `work` on the inputs of `sample`. First
// evicts the caches and reads what is to be warm.
using SampleClock =
    std::function<Result<double>(int64_t sample, const std::function<Status()>& work)>;

// A speed-up, time(base)/time(contestant): above 1 the contestant is faster. With the 95% bootstrap
// percentile interval of the median of per-round log ratios (Efron, 1979).
struct RatioInterval {
  double low = 0, median = 0, high = 0;
};

struct PairedTimes {
  std::vector<std::string> names;
  std::vector<std::vector<double>> ns;  // [contestant][round], every one above 0
  uint64_t seed = 0;                    // for the bootstrap: equal times give equal intervals

  size_t rounds() const { return ns.empty() ? 0 : ns[0].size(); }
  // All of these REQUIRE: valid indices and rounds() > 0.
  double MedianNs(size_t contestant) const;
  RatioInterval Speedup(size_t base, size_t contestant) const;  // time(base) / time(contestant)
  // Returns true if more than a tenth of all samples took at least twice their contestant's median.
  // That happens if another program uses the GPU at times.
  bool Interrupted() const;
};

// The middle value, or the mean of the two middle values. REQUIRES: not empty.
double Median(std::vector<double> values);

// A race ends at max_samples. It ends earlier, after min_samples, if budget_s is spent or every
// interval's half-width is below `precision`; and at every tenth round if `decided`.
struct PairedOptions {
  int min_samples = 30;
  int max_samples = 300;
  double budget_s = 2;
  double precision = 0.01;
  // Empty: never.
  std::function<bool(const PairedTimes&)> decided = nullptr;
  uint64_t seed = 0;  // for the order within each round and the bootstrap
};

// Runs rounds of one sample of every contestant, in a new random order each, after two warm-up
// rounds. Errors: those of `run` and `clock`, with the contestant's name; kUnavailable if the clock
// gives no time. REQUIRES: at least one contestant; 1 <= min_samples <= max_samples.
Result<PairedTimes> TimePaired(const std::vector<Contestant>& contestants, const SampleClock& clock,
                               const PairedOptions& options);

}  // namespace cudaforge
