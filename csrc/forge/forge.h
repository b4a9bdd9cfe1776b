// Forge: makes a kernel for one region within a budget. Search (propose, compile, verify, time in
// the worker) happens here, with a checker that the caller made (its part of verify needs libtorch;
// this folder does not); the final race against ATen and Inductor needs a Python callable and is
// given as contestants by the caller.
#pragma once

#include <functional>
#include <limits>
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
  // Less what verifying one candidate is measured to take, it ends the search.
  double seconds = 30;
  // Nothing begins that would end after so many seconds, as far as is known by what the same took
  // before: not the first candidate either. The best may be verified between `seconds` and this. A
  // candidate that hangs may take as long once more: the runner's timeouts are the caller's.
  double limit = std::numeric_limits<double>::infinity();
  int candidates = 64;
  int patience = 24;  // gives up after so many candidates in a row that did not beat the best
};

// A limit of `seconds` as a timeout: at least 1 ms, at most `longest_ms`.
int TimeoutMs(double seconds, int longest_ms);

struct Trial {
  Candidate candidate;
  Verdict verdict;
  std::optional<double> worker_ns;
  std::string binary;
  Json resources = Json::object();  // as CompileResult has them
};

// {"event":"candidate","index":0,"verdict":"accepted","ns":812.0,"params":{...},"best":true}; ns
// only when it was timed; "best" and "accepted" so far, on the first input set. Then for each that
// is verified {"event":"verified","index":0,"verdict":"accepted","ns":812.0}. Called from the
// forging thread.
using ForgeProgress = std::function<void(const Json& event)>;

struct SearchOutcome {
  std::optional<Trial> best;  // accepted by every input set, fastest in the worker
  // One per candidate, in order: author, params, verdict, ns, seconds, resources. At most one is
  // accepted. A candidate that the budget cut off is left out.
  std::vector<Json> lineage;
  size_t stored = 0;   // candidates tried that are in the store's lineage already
  Json verification;   // {"report": the checker's, "cases": [names], "poisons": [...]}; of the best
  std::string reason;  // why there is no best, or why the search ended
  bool out_of_time = false;  // the budget ended it: more might have been found
};

// Tries `search`'s candidates until the budget or the space is spent: each runs on the first input
// set with one poison, and is timed when it is right there. Then the fastest is verified: the first
// set with another poison, and every other set. When it fails, the next fastest is, four in all (a
// second and later one only within `seconds`), each with its verdict in the lineage; those not
// reached are too_slow, or not_judged where none was right. Errors only for what is not a
// candidate's fault, and only when there is no best to return.
Result<SearchOutcome> SearchRegion(const OpSignature& signature, CandidateSearch& search,
                                   CandidateRunner& runner, const RegionChecker& checker,
                                   const ForgeBudget& budget, const ForgeProgress& progress);

// The same with the built-in generators' search for `arch`; kUnsupported where they cannot express
// the region.
Result<SearchOutcome> SearchRegion(const OpSignature& signature, const DeviceArch& arch,
                                   CandidateRunner& runner, const RegionChecker& checker,
                                   const ForgeBudget& budget, const ForgeProgress& progress);

// What became of one candidate on this machine.
struct Proof {
  Trial trial;        // accepted only when every input set was right; else without its binary
  Json verification;  // as SearchOutcome has it, when accepted
};

// SearchRegion with this candidate alone: compiled, timed and verified, in about `seconds`.
Result<Proof> ProveCandidate(const OpSignature& signature, const Candidate& candidate,
                             CandidateRunner& runner, const RegionChecker& checker, double seconds);

// What a race of a kernel, contestants[0], against its rivals says. The rule is ServedBy.
struct Promotion {
  bool promoted = false;  // serves compiled graphs
  bool eager = false;     // serves eager calls
  // Serves nobody, only because a median contradicts the pairs, in this race or the one inside a
  // larger region: the machine was too busy.
  bool doubtful = false;
  std::string reason;
  std::string best_rival;
  RatioInterval speedup;  // over best_rival
  PairedTimes times;
  Json within;  // of a part: {"key": the larger region's, and the times of the race inside it}

  bool serves() const { return promoted || eager; }
  // {"winner_us", "rounds", "best_rival", "speedup", "within" of a part, and for each rival NAME_us
  // and "speedup_over_NAME"}.
  Json Timing() const;
};
// `one_call`: an eager call may be all of the region. REQUIRES: at least two contestants.
Result<Promotion> Race(const std::vector<Contestant>& contestants, const SampleClock& clock,
                       const PairedOptions& options, bool one_call = false);

// The verdict on a part of the region `key` that was raced alone and, with the rest of that region
// by Inductor, inside it.
Promotion PlacedIn(Promotion alone, const std::string& key, const Promotion& inside);

// Of a whole region, from the making of the checker to the end of the last race: what was allowed
// and what was spent.
struct RegionTime {
  double budget_s = 0;
  double spent_s = 0;
};

// The record of what was found. `versions`: see CacheRecord. The race's contestants become NAME_us
// in `timing`, the first one winner_us: rivals are named "aten" and "inductor". REQUIRES (winner):
// outcome.best, and promotion.serves().
CacheRecord MakeWinnerRecord(const OpSignature& signature, const DeviceArch& arch,
                             const SearchOutcome& outcome, const Promotion& promotion,
                             const RegionTime& time, const Json& versions);
// `promotion`: nullptr when it never came to a race: nothing was found, or the time was spent
// before what was found could be raced. provenance.reason says why there is no winner.
CacheRecord MakeNegativeRecord(const OpSignature& signature, const DeviceArch& arch,
                               const SearchOutcome& outcome, const Promotion* promotion,
                               const RegionTime& time, const Json& versions);

}  // namespace cudaforge
