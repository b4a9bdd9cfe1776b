// Forge: makes a kernel for one region within a budget. Search (propose, compile, verify, time in
// the worker) happens here, with a checker that the caller made (its part of verify needs libtorch;
// this folder does not); the final race against ATen and Inductor needs a Python callable and is
// given as contestants by the caller.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "cache/record.h"
#include "generators/generator.h"
#include "kernel/candidate.h"
#include "measure/paired.h"
#include "signature/op_signature.h"
#include "verify/checker.h"
#include "verify/verdict.h"
#include "worker/worker_client.h"

namespace cudaforge {

struct ForgeBudget {
  double seconds =
      30;  // checked before each step of the worker: a hard limit but for the step under way
  int candidates = 64;
  int patience = 24;  // gives up after so many candidates in a row that did not beat the best
};

struct Trial {
  Candidate candidate;
  Verdict verdict;
  std::optional<double> worker_ns;
  std::string binary;
};

// {"event":"candidate","index":0,"verdict":"accepted","ns":812.0,"params":{...},"best":true}; ns
// only when it was timed. Called from the forging thread.
using ForgeProgress = std::function<void(const Json& event)>;

struct SearchOutcome {
  std::optional<Trial> best;  // accepted by every input set, fastest in the worker
  std::vector<Json>
      lineage;         // one per candidate, in order: author, params, verdict, ns, seconds, log
  Json verification;   // {"report": the checker's, "cases": [names], "poisons": [...]}; of the best
  std::string reason;  // why there is no best, or why the search ended
  double seconds = 0;
};

// Tries `search`'s candidates until the budget or the space is spent. Errors only for what is not a
// candidate's fault, and only when there is no best to return. A candidate runs on the first input
// set, with two poisons, and is timed; only one that is faster than the best goes on to the other
// sets (else its verdict is too_slow).
Result<SearchOutcome> SearchRegion(const OpSignature& signature, CandidateSearch& search,
                                   CandidateRunner& runner, const RegionChecker& checker,
                                   const ForgeBudget& budget, const ForgeProgress& progress);

// The same with the built-in generators' search for `arch`; kUnsupported where they cannot express
// the region.
Result<SearchOutcome> SearchRegion(const OpSignature& signature, const DeviceArch& arch,
                                   CandidateRunner& runner, const RegionChecker& checker,
                                   const ForgeBudget& budget, const ForgeProgress& progress);

// A search of one candidate: with SearchRegion it proves on this machine a kernel that was made on
// another.
std::unique_ptr<CandidateSearch> MakeSingleSearch(Candidate candidate);

// The promotion rule of the design: contestants[0] is the winner-to-be, the others its rivals. It
// wins when the lower bound of its speed-up over the fastest rival (by median) is above
// kPromotionBound.
struct Promotion {
  bool promoted = false;
  std::string reason;
  std::string best_rival;
  RatioInterval speedup;  // over best_rival
  PairedTimes times;
};
inline constexpr double kPromotionBound = 1.03;
// REQUIRES: at least two contestants.
Result<Promotion> Race(const std::vector<Contestant>& contestants, const SampleClock& clock,
                       const PairedOptions& options);

// The record of what was found. `versions`: see CacheRecord. The race's contestants become NAME_us
// in `timing`, the first one winner_us: rivals are named "aten" and "inductor". REQUIRES (winner):
// outcome.best and promotion.promoted.
CacheRecord MakeWinnerRecord(const OpSignature& signature, const DeviceArch& arch,
                             const SearchOutcome& outcome, const Promotion& promotion,
                             const Json& versions);
// `promotion`: nullptr when it never came to a race. provenance.reason says why there is no winner.
CacheRecord MakeNegativeRecord(const OpSignature& signature, const DeviceArch& arch,
                               const SearchOutcome& outcome, const Promotion* promotion,
                               const Json& versions);

}  // namespace cudaforge
