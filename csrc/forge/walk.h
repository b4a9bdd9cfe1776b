// The search of the built-in generators: a policy that screens their candidates, then proves the
// fastest.
#pragma once

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "forge/forge.h"
#include "generators/generator.h"

namespace cudaforge {

struct ForgeBudget {
  // Screening ends after this, minus the measured time of one proof.
  double seconds = 30;
  // A hard limit: no step begins that is expected to end later. The expectation is the last
  // duration of the same step. The best candidate may be proven between `seconds` and `limit`. A
  // candidate that hangs may add the runner's timeout.
  double limit = std::numeric_limits<double>::infinity();
  int candidates = 64;
  int patience = 24;  // gives up after so many candidates in a row without a new best
};

// One generator's walk over its candidates, as an author.
struct Walk {
  std::string name;  // "generator:rows"
  std::unique_ptr<CandidateSearch> search;
};
// Returns the walks of every generator that can make the region. kUnsupported: none can.
Result<std::vector<Walk>> WalksFor(const Task& task);

// Screens candidates until the budget or the walks are used up. Then proves the fastest. If it
// fails, tries the next fastest, four in all (after the first only within `seconds`). Unproven
// trials are too_slow, or not_judged if none was correct. Returns an error only if it is not a
// candidate's fault, and there is no best. For the progress events see docs/messages.md.
Result<SearchOutcome> SearchWalks(std::vector<Walk> walks, Evaluator& evaluator,
                                  const ForgeBudget& budget, const ForgeProgress& progress);

// Converts `seconds` to a timeout: at least 1 ms, at most `longest_ms`.
int TimeoutMs(double seconds, int longest_ms);

}  // namespace cudaforge
