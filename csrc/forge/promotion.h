// The race that a proven kernel must win, and the record of the result.
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

// The result of a race of contestants[0] against the others, by ServedBy (cache/record.h).
struct Promotion {
  bool promoted = false;  // serves compiled graphs
  bool eager = false;     // serves eager calls
  // Serves nothing, only because a median contradicts the pairs, here or in the race inside a
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
// `one_call`: an eager call can be the whole region. REQUIRES: at least two contestants.
Result<Promotion> Race(const std::vector<Contestant>& contestants, const SampleClock& clock,
                       const PairedOptions& options, bool one_call = false);

// The verdict on a part of the region `key`. `alone`: the race of the part. `inside`: the race of
// the whole region, with its rest by Inductor.
Promotion PlacedIn(Promotion alone, const std::string& key, const Promotion& inside);

// The time of a whole region, from opening its verifier to the last race: the budget and what was
// used.
struct RegionTime {
  double budget_s = 0;
  double spent_s = 0;
};

// Makes the record of a winner. `versions`: see CacheRecord. The contestants become NAME_us in
// `timing`, the first one winner_us; rivals are named "aten" and "inductor". REQUIRES:
// outcome.best, and promotion.serves().
CacheRecord MakeWinnerRecord(const OpSignature& signature, const DeviceArch& arch,
                             const SearchOutcome& outcome, const Promotion& promotion,
                             const RegionTime& time, const Json& versions);
// Makes the record of a region without a winner; provenance.reason says why. `promotion`: nullptr
// if there was no race.
CacheRecord MakeNegativeRecord(const OpSignature& signature, const DeviceArch& arch,
                               const SearchOutcome& outcome, const Promotion* promotion,
                               const RegionTime& time, const Json& versions);

}  // namespace cudaforge
