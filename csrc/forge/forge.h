// Forge: makes a kernel for one region within a budget. Search (propose, compile, verify, time in the worker) happens here;
// the final race against ATen and Inductor needs a Python callable and is given as contestants by the caller.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "cache/kernel_store.h"
#include "kernel/candidate.h"
#include "measure/paired.h"
#include "signature/op_signature.h"
#include "target/target.h"
#include "verify/verdict.h"
#include "worker/worker_client.h"

namespace cudaforge {

struct ForgeBudget {
  double seconds = 30;
  int candidates = 64;
};

struct Trial {
  Candidate candidate;
  Verdict verdict;
  std::optional<double> worker_ns;
  std::string binary;
};

// {"event":"candidate","verdict":...,"ns":...}; called from the forging thread.
using ForgeProgress = std::function<void(const Json& event)>;

struct SearchOutcome {
  std::optional<Trial> best;   // accepted by every input set, fastest in the worker
  std::vector<Json> lineage;   // one per candidate, in order
  Json verification;           // the checker's report
  std::string reason;          // why there is no best
  double seconds = 0;
};

// Tries candidates until the budget or the space is spent. Errors only for what is not a candidate's fault.
Result<SearchOutcome> SearchRegion(const OpSignature& signature, const DeviceArch& arch, WorkerClient& worker,
                                   const ForgeBudget& budget, const ForgeProgress& progress);

// The promotion rule of the design: contestants[0] is the winner-to-be, the others its rivals.
struct Promotion {
  bool promoted = false;
  std::string reason;
  std::string best_rival;
  RatioInterval speedup;  // over best_rival
  PairedTimes times;
};
inline constexpr double kPromotionBound = 1.03;
Result<Promotion> Race(const std::vector<Contestant>& contestants, const SampleClock& clock,
                       const PairedOptions& options);

}  // namespace cudaforge
