#include <ctime>
#include <utility>

#include "forge/promotion.h"

namespace cudaforge {
namespace {

// `why` in a record that serves no compiled graph: cache/FORMAT.md. Messages to users are derived
// from it.
std::string_view WhyNoWinner(const SearchOutcome& outcome, const Promotion* promotion) {
  if (promotion != nullptr) {
    if (promotion->doubtful) return "doubtful";
    return promotion->within.is_null() ? "not_faster" : "not_within";
  }
  if (outcome.best.has_value()) return "not_raced";
  if (outcome.out_of_time) return "out_of_time";
  return outcome.trials.empty() ? "none_tried" : "none_right";
}

CacheRecord MakeRecord(const OpSignature& signature, const DeviceArch& arch,
                       const SearchOutcome& outcome, const Promotion* promotion,
                       const RegionTime& time, const std::string& reason, const Json& versions) {
  CacheRecord record;
  record.key = signature.Key();
  record.arch = arch.target;
  record.signature = signature.Canonical();
  record.verification =
      LenientText(outcome.best.has_value() ? outcome.best->verification : Json::object());
  Json timing = promotion != nullptr ? promotion->Timing() : Json::object();
  if (promotion != nullptr && outcome.best->prepare_ns > 0) {
    timing["prepare_us"] = FloatToJson(outcome.best->prepare_ns / 1e3);
  }
  record.timing = LenientText(timing);
  Json provenance = {{"candidates_tried", outcome.trials.size()},
                     {"forge_seconds", time.spent_s},
                     {"budget_s", time.budget_s},
                     {"created", static_cast<int64_t>(std::time(nullptr))}};
  const bool raced = !outcome.best.has_value() || promotion != nullptr;
  if (outcome.out_of_time || !raced) provenance["out_of_time"] = true;
  if (outcome.best.has_value()) {
    provenance["author"] = outcome.best->candidate.author;
    provenance["params"] = outcome.best->candidate.params;
  }
  if (promotion == nullptr || !promotion->promoted) {
    provenance["reason"] = reason;
    provenance["why"] = WhyNoWinner(outcome, promotion);
  }
  record.provenance = LenientText(provenance);
  record.versions = versions;
  return record;
}

}  // namespace

CacheRecord MakeWinnerRecord(const OpSignature& signature, const DeviceArch& arch,
                             const SearchOutcome& outcome, const Promotion& promotion,
                             const RegionTime& time, const Json& versions) {
  CF_CHECK(outcome.best.has_value() && promotion.serves()) << "only what won makes a winner";
  CacheRecord record =
      MakeRecord(signature, arch, outcome, &promotion, time, promotion.reason, versions);
  record.variants = {{.candidate = CanonicalJson(outcome.best->candidate.ToJson()),
                      .binary = outcome.best->binary,
                      .verification = std::exchange(record.verification, ""),
                      .timing = std::exchange(record.timing, "")}};
  return record;
}

CacheRecord MakeNegativeRecord(const OpSignature& signature, const DeviceArch& arch,
                               const SearchOutcome& outcome, const Promotion* promotion,
                               const RegionTime& time, const Json& versions) {
  std::string reason = outcome.reason;
  if (promotion != nullptr) {
    reason = promotion->reason;
  } else if (outcome.best.has_value()) {
    reason = "not raced: region_budget_s was spent first; a larger one tries again";
  }
  return MakeRecord(signature, arch, outcome, promotion, time, reason, versions);
}

}  // namespace cudaforge
