#include "base/text.h"
#include "forge/forge.h"

namespace cudaforge {
namespace {

constexpr std::string_view kAten = "aten";  // the rival that eager calls run

// On a busy machine pairs of which one half was interrupted may say that a kernel is faster whose
// own times do not.
bool HasSmallerMedian(const PairedTimes& times, size_t rival) {
  return times.MedianNs(0) < times.MedianNs(rival);
}

std::string Times(double factor) { return Fixed(factor, 3) + "x"; }

}  // namespace

Result<Promotion> Race(const std::vector<Contestant>& contestants, const SampleClock& clock,
                       const PairedOptions& options, bool eager) {
  CF_CHECK(contestants.size() >= 2) << "a race needs a rival";
  // What is surely slower than a rival cannot be promoted, nor what is slower than ATen serve eager
  // calls, however long the race goes on.
  PairedOptions until_lost = options;
  until_lost.decided = [eager](const PairedTimes& times) {
    for (size_t rival = 1; rival < times.names.size(); ++rival) {
      if (eager && times.names[rival] != kAten) continue;
      if (times.Speedup(rival, 0).high < 1) return true;
    }
    return false;
  };
  Promotion promotion;
  promotion.eager = eager;
  CF_ASSIGN_OR_RETURN(promotion.times, TimePaired(contestants, clock, until_lost));
  size_t rival = 1;
  for (size_t i = 2; i < contestants.size(); ++i) {
    if (promotion.times.MedianNs(i) < promotion.times.MedianNs(rival)) rival = i;
  }
  promotion.best_rival = contestants[rival].name;
  promotion.speedup = promotion.times.Speedup(rival, 0);
  const bool above = promotion.speedup.low > kPromotionBound;
  promotion.promoted = above && HasSmallerMedian(promotion.times, rival);
  promotion.undecided = above && !promotion.promoted;
  promotion.reason = Times(promotion.speedup.median) + " " + promotion.best_rival +
                     ", lower bound " + Times(promotion.speedup.low) +
                     (above ? " > " : ", not above ") + Times(kPromotionBound);
  for (size_t i = 1; i < contestants.size(); ++i) {
    if (contestants[i].name != kAten) continue;
    promotion.over_aten = promotion.times.Speedup(i, 0);
    const bool above_aten = promotion.over_aten->low > kPromotionBound;
    promotion.faster_than_aten = above_aten && HasSmallerMedian(promotion.times, i);
    if (eager && above_aten && !promotion.faster_than_aten) promotion.undecided = true;
  }
  if (promotion.undecided) {
    promotion.reason += above ? ", and yet no smaller median"
                              : ", faster than ATen by its pairs and not by its medians";
  }
  if (promotion.eager_only()) promotion.undecided = false;
  return promotion;
}

bool Promotion::eager_only() const { return eager && !promoted && faster_than_aten; }

Json Promotion::Timing() const {
  Json timing = Json::object();
  for (size_t i = 0; i < times.names.size(); ++i) {
    const std::string name = i == 0 ? "winner" : times.names[i];
    timing[name + "_us"] = FloatToJson(times.MedianNs(i) / 1e3);
  }
  timing["rounds"] = times.rounds();
  timing["best_rival"] = best_rival;
  timing["speedup"] = {speedup.low, speedup.median, speedup.high};
  if (eager_only())
    timing["speedup_over_aten"] = {over_aten->low, over_aten->median, over_aten->high};
  if (undecided) timing["undecided"] = true;
  return timing;
}

Promotion PlacedIn(Promotion alone, const std::string& key, const Promotion& inside) {
  alone.within = inside.Timing();
  alone.within["key"] = key;
  if (alone.promoted && !inside.promoted) {
    alone.promoted = false;
    alone.undecided = inside.undecided && !alone.eager_only();
    alone.reason = "faster alone (" + alone.reason + "), but not inside the region " +
                   key.substr(0, 12) + " (" + inside.reason + ")";
  }
  return alone;
}

}  // namespace cudaforge
