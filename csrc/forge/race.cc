#include <cstdio>
#include <ctime>

#include "forge/forge.h"

namespace cudaforge {
namespace {

std::string Times(double factor) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3fx", factor);
  return text;
}

// {"winner_us", one NAME_us for each rival, "rounds", "best_rival", "speedup"}
Json TimingOf(const Promotion& promotion) {
  Json timing = Json::object();
  for (size_t i = 0; i < promotion.times.names.size(); ++i) {
    const std::string name = i == 0 ? "winner" : promotion.times.names[i];
    timing[name + "_us"] = FloatToJson(promotion.times.MedianNs(i) / 1e3);
  }
  timing["rounds"] = promotion.times.rounds();
  timing["best_rival"] = promotion.best_rival;
  timing["speedup"] = {promotion.speedup.low, promotion.speedup.median, promotion.speedup.high};
  return timing;
}

CacheRecord MakeRecord(CacheRecord::Kind kind, const OpSignature& signature, const DeviceArch& arch,
                       const SearchOutcome& outcome, const Promotion* promotion,
                       const RegionTime& time, const Json& versions) {
  CacheRecord record;
  record.kind = kind;
  record.key = signature.Key();
  record.arch = arch.target;
  record.signature = signature.ToJson();
  record.verification = outcome.verification;
  record.timing = Json::object();
  if (promotion != nullptr) {
    record.timing = TimingOf(*promotion);
    if (!promotion->within.is_null()) record.timing["within"] = promotion->within;
  }
  record.provenance = {{"candidates_tried", outcome.lineage.size()},
                       {"forge_seconds", time.spent_s},
                       {"budget_s", time.budget_s},
                       {"created", static_cast<int64_t>(std::time(nullptr))}};
  const bool raced = !outcome.best.has_value() || promotion != nullptr;
  if (outcome.out_of_time || !raced) record.provenance["out_of_time"] = true;
  if (outcome.best.has_value()) {
    record.provenance["author"] = outcome.best->candidate.author;
    record.provenance["params"] = outcome.best->candidate.params;
  }
  record.versions = versions;
  return record;
}

}  // namespace

Result<Promotion> Race(const std::vector<Contestant>& contestants, const SampleClock& clock,
                       const PairedOptions& options) {
  CF_CHECK(contestants.size() >= 2) << "a race needs a rival";
  // What is surely slower than a rival cannot be promoted, however long the race goes on.
  PairedOptions until_lost = options;
  until_lost.decided = [](const PairedTimes& times) {
    for (size_t rival = 1; rival < times.names.size(); ++rival) {
      if (times.Speedup(rival, 0).high < 1) return true;
    }
    return false;
  };
  Promotion promotion;
  CF_ASSIGN_OR_RETURN(promotion.times, TimePaired(contestants, clock, until_lost));
  size_t rival = 1;
  for (size_t i = 2; i < contestants.size(); ++i) {
    if (promotion.times.MedianNs(i) < promotion.times.MedianNs(rival)) rival = i;
  }
  promotion.best_rival = contestants[rival].name;
  promotion.speedup = promotion.times.Speedup(rival, 0);
  promotion.promoted = promotion.speedup.low > kPromotionBound;
  promotion.reason = Times(promotion.speedup.median) + " " + promotion.best_rival +
                     ", lower bound " + Times(promotion.speedup.low) +
                     (promotion.promoted ? " > " : ", not above ") + Times(kPromotionBound);
  return promotion;
}

Promotion PlacedIn(Promotion alone, const std::string& key, const Promotion& inside) {
  alone.within = TimingOf(inside);
  alone.within["key"] = key;
  if (alone.promoted && !inside.promoted) {
    alone.promoted = false;
    alone.reason = "faster alone (" + alone.reason + "), but not inside the region " +
                   key.substr(0, 12) + " (" + inside.reason + ")";
  }
  return alone;
}

CacheRecord MakeWinnerRecord(const OpSignature& signature, const DeviceArch& arch,
                             const SearchOutcome& outcome, const Promotion& promotion,
                             const RegionTime& time, const Json& versions) {
  CF_CHECK(outcome.best.has_value() && promotion.promoted) << "only what won makes a winner";
  CacheRecord record =
      MakeRecord(CacheRecord::Kind::kWinner, signature, arch, outcome, &promotion, time, versions);
  record.candidate = CanonicalJson(outcome.best->candidate.ToJson());
  record.binary = outcome.best->binary;
  return record;
}

CacheRecord MakeNegativeRecord(const OpSignature& signature, const DeviceArch& arch,
                               const SearchOutcome& outcome, const Promotion* promotion,
                               const RegionTime& time, const Json& versions) {
  CacheRecord record =
      MakeRecord(CacheRecord::Kind::kNegative, signature, arch, outcome, promotion, time, versions);
  if (promotion != nullptr) {
    record.provenance["reason"] = promotion->reason;
  } else if (outcome.best.has_value()) {
    record.provenance["reason"] =
        "not raced: region_budget_s was spent first; a larger one tries again";
  } else {
    record.provenance["reason"] = outcome.reason;
  }
  return record;
}

}  // namespace cudaforge
