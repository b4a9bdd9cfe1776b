#include "base/text.h"
#include "forge/promotion.h"

namespace cudaforge {
namespace {

constexpr std::string_view kAten = "aten";  // the rival for eager calls

std::string Times(double factor) { return Fixed(factor, 3) + "x"; }

Json IntervalJson(const RatioInterval& interval) {
  return {interval.low, interval.median, interval.high};
}

}  // namespace

Result<Promotion> Race(const std::vector<Contestant>& contestants, const SampleClock& clock,
                       const PairedOptions& options, bool one_call) {
  CF_CHECK(contestants.size() >= 2) << "a race needs a rival";
  // Stops a race that is certainly lost: slower than a rival for compiled graphs, slower than ATen
  // for eager calls.
  PairedOptions until_lost = options;
  until_lost.decided = [one_call](const PairedTimes& times) {
    for (size_t rival = 1; rival < times.names.size(); ++rival) {
      if (one_call && times.names[rival] != kAten) continue;
      if (times.Speedup(rival, 0).high < 1) return true;
    }
    return false;
  };
  Promotion promotion;
  CF_ASSIGN_OR_RETURN(promotion.times, TimePaired(contestants, clock, until_lost));
  const PairedTimes& times = promotion.times;
  size_t rival = 1;
  bool above_aten = false;
  for (size_t i = 1; i < contestants.size(); ++i) {
    if (times.MedianNs(i) < times.MedianNs(rival)) rival = i;
    if (contestants[i].name == kAten) above_aten = times.Speedup(i, 0).low > kPromotionBound;
  }
  promotion.best_rival = contestants[rival].name;
  promotion.speedup = times.Speedup(rival, 0);
  const Served served = ServedBy(promotion.Timing(), one_call);
  promotion.promoted = served.compiled;
  promotion.eager = served.eager;
  const bool above = promotion.speedup.low > kPromotionBound;
  promotion.doubtful = (above || (one_call && above_aten)) && !promotion.serves();
  promotion.reason = Times(promotion.speedup.median) + " " + promotion.best_rival +
                     ", lower bound " + Times(promotion.speedup.low) +
                     (above ? " > " : ", not above ") + Times(kPromotionBound);
  if (above && !promotion.promoted) {
    promotion.reason += ", and yet no smaller median";
  } else if (promotion.doubtful) {
    promotion.reason += ", faster than ATen by its pairs and not by its medians";
  }
  return promotion;
}

Json Promotion::Timing() const {
  Json timing = Json::object();
  for (size_t i = 0; i < times.names.size(); ++i) {
    const std::string name = i == 0 ? "winner" : times.names[i];
    timing[name + "_us"] = FloatToJson(times.MedianNs(i) / 1e3);
    if (i > 0) timing["speedup_over_" + name] = IntervalJson(times.Speedup(i, 0));
  }
  timing["rounds"] = times.rounds();
  timing["best_rival"] = best_rival;
  timing["speedup"] = IntervalJson(speedup);
  if (!within.is_null()) timing["within"] = within;
  return timing;
}

Promotion PlacedIn(Promotion alone, const std::string& key, const Promotion& inside) {
  alone.within = inside.Timing();
  alone.within["key"] = key;
  if (alone.promoted && !inside.promoted) {
    alone.promoted = false;
    alone.doubtful = inside.doubtful && !alone.eager;
    alone.reason = "faster alone (" + alone.reason + "), but not inside the region " +
                   key.substr(0, 12) + " (" + inside.reason + ")";
  }
  return alone;
}

}  // namespace cudaforge
