// The race that a proven kernel must win, and the record of what was found.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "cache/record.h"
#include "forge/forge.h"
#include "measure/paired.h"
#include "signature/device_arch.h"
#include "signature/op_signature.h"

namespace cudaforge {

// Whom a kernel may serve after the race of contestants[0] against the others, by ServedBy
// (cache/record.h).
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

// Of a whole region, from the opening of its verifier to the end of the last race: what was allowed
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
