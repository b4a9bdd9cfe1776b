// The search of the built-in generators: a policy that screens what they write, and then proves the
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
  // Less what proving one candidate is measured to take, it ends the screening.
  double seconds = 30;
  // Nothing begins that would end after so many seconds, as far as is known by what the same took
  // before: not the first candidate either. The best may be proven between `seconds` and this. A
  // candidate that hangs may take as long once more: the runner's timeouts are the caller's.
  double limit = std::numeric_limits<double>::infinity();
  int candidates = 64;
  int patience = 24;  // gives up after so many candidates in a row that did not beat the best
};

// Who writes for one region: a generator's walk over its candidates, as an author.
struct Walk {
  std::string name;  // "generator:rows"
  std::unique_ptr<CandidateSearch> search;
};
// Those of every generator that can make the region, which take turns. kUnsupported: none can.
Result<std::vector<Walk>> WalksFor(const Task& task);

// Screens candidates until the budget or the walks are spent. Then proves the fastest; when it
// fails, the next fastest, four in all (a second and later one only within `seconds`). Trials that
// were not proven are too_slow, or not_judged where none was right. Errors only for what is not a
// candidate's fault, and only when there is no best to return.
//
// Progress: {"event":"candidate","index":0,"verdict":"accepted","ns":812.0,"params":{...},
// "best":true}; ns only when it was timed; "best" and "accepted" so far, on the first input set.
// Then for each that is proven {"event":"verified","index":0,"verdict":"accepted","ns":812.0}.
Result<SearchOutcome> SearchWalks(std::vector<Walk> walks, Evaluator& evaluator,
                                  const ForgeBudget& budget, const ForgeProgress& progress);

// A limit of `seconds` as a timeout: at least 1 ms, at most `longest_ms`.
int TimeoutMs(double seconds, int longest_ms);

}  // namespace cudaforge
