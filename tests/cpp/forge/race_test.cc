#include <gtest/gtest.h>

#include "cache/kernel_store.h"
#include "forge/promotion.h"
#include "tests/cpp/forge/fakes.h"

namespace cudaforge {
namespace {

// Contestants with a fixed time and a little noise per sample.
class Track {
 public:
  Contestant Make(const std::string& name, double ns) {
    return {name, [this, ns](int64_t sample) {
              ns_ = ns * (1 + 0.001 * static_cast<double>((sample * 7 + ++calls_ * 5) % 11));
              return Status::Ok();
            }};
  }
  SampleClock clock() {
    return [this](int64_t, const std::function<Status()>& work) -> Result<double> {
      CF_RETURN_IF_ERROR(work());
      return ns_;
    };
  }

 private:
  double ns_ = 0;
  int64_t calls_ = 0;
};

Promotion RaceOf(double winner, double aten, double inductor, bool one_call = false) {
  Track track;
  return Race({track.Make("forged", winner), track.Make("aten", aten),
               track.Make("inductor", inductor)},
              track.clock(), {}, one_call)
      .value();
}

TEST(RaceRule, EndsWhenTheFirstHasCertainlyLost) {
  EXPECT_EQ(RaceOf(3000, 4000, 1200).times.rounds(), 10u);
  EXPECT_FALSE(RaceOf(3000, 4000, 1200).promoted);
  EXPECT_GE(RaceOf(1000, 4000, 1200).times.rounds(), 30u) << "what may win is timed in full";
  EXPECT_GE(RaceOf(1000, 4000, 1001).times.rounds(), 30u) << "and so is what is as fast";
}

SearchOutcome Found() {
  SearchOutcome outcome;
  ProvenKernel kernel;
  kernel.candidate.source.code = "code";
  kernel.candidate.author = "generator:rows";
  Launch launch;
  launch.kernel = "k";
  kernel.candidate.plan.launches = {launch};
  kernel.candidate.params = {{"tile", 4}};
  kernel.binary = "\x7f binary";
  kernel.verification = {{"cases", {"normal"}}};
  outcome.best = kernel;
  outcome.trials.resize(2);
  return outcome;
}

TEST(RaceRule, ClearlyFasterThanTheFastestRival) {
  Promotion promotion = RaceOf(1000, 3000, 1200);
  EXPECT_TRUE(promotion.promoted) << promotion.reason;
  EXPECT_EQ(promotion.best_rival, "inductor");
  EXPECT_NEAR(promotion.speedup.median, 1.2, 0.02);
  EXPECT_EQ(RaceOf(1000, 1200, 3000).best_rival, "aten");
}

TEST(RaceRule, BeatingOnlyOneRivalIsNotEnough) {
  Promotion promotion = RaceOf(1000, 3000, 900);
  EXPECT_FALSE(promotion.promoted);
  EXPECT_LT(promotion.speedup.high, 1);
}

TEST(RaceRule, SlightlyFasterIsNotEnough) {
  EXPECT_FALSE(RaceOf(1000, 1020, 1020).promoted);
  EXPECT_FALSE(RaceOf(1000, 1000, 1000).promoted);
  EXPECT_TRUE(RaceOf(1000, 1060, 1060).promoted);
}

TEST(RaceRule, AnEagerCallsRivalIsAten) {
  const Promotion eager = RaceOf(1000, 3000, 900, true);
  EXPECT_FALSE(eager.promoted);
  EXPECT_TRUE(eager.eager);
  EXPECT_NEAR(eager.Timing()["speedup_over_aten"][1].get<double>(), 3, 0.05);
  EXPECT_NEAR(eager.Timing()["speedup_over_inductor"][1].get<double>(), 0.9, 0.02);
  EXPECT_EQ(eager.best_rival, "inductor");
  EXPECT_GE(RaceOf(3000, 4000, 1200, true).times.rounds(), 30u) << "it may still serve eager calls";
  EXPECT_EQ(RaceOf(3000, 1200, 4000, true).times.rounds(), 10u);
  EXPECT_FALSE(RaceOf(3000, 1200, 4000, true).eager);
  EXPECT_FALSE(RaceOf(1000, 1020, 900, true).eager) << "a little faster is not enough";
  EXPECT_FALSE(RaceOf(1000, 3000, 900).eager) << "no eager call is all of the region";
  const Promotion won = RaceOf(1000, 3000, 1200, true);
  EXPECT_TRUE(won.promoted);
  EXPECT_TRUE(won.eager);
  const Promotion lost_inside = PlacedIn(won, std::string(64, 'a'), RaceOf(1000, 1000, 1000));
  EXPECT_FALSE(lost_inside.promoted);
  EXPECT_TRUE(lost_inside.eager);
}

// Against `rival`, pairs give 1.1 and medians 6 and 5.5: possible on a busy machine. `other` takes
// `times` as long as the kernel.
Promotion DisturbedRace(const std::string& rival = "aten", const std::string& other = "",
                        double times = 0) {
  double ns = 0;
  const auto make = [&ns](const std::string& name, double often, double at_times, double last) {
    return Contestant{name, [=, &ns, calls = 0](int64_t) mutable {
                        const int phase = calls++ % 20;
                        ns = 1000 * (phase < 7 ? often : phase < 14 ? at_times : last);
                        return Status::Ok();
                      }};
  };
  const SampleClock clock = [&ns](int64_t, const std::function<Status()>& work) -> Result<double> {
    CF_RETURN_IF_ERROR(work());
    return ns;
  };
  std::vector<Contestant> contestants = {make("forged", 5, 9, 6), make(rival, 5.5, 9.9, 1)};
  if (!other.empty()) contestants.push_back(make(other, 5 * times, 9 * times, 6 * times));
  return Race(contestants, clock, {}, true).value();
}

TEST(RaceRule, WithoutASmallerMedianIsNotFaster) {
  const Promotion promotion = DisturbedRace();
  EXPECT_GT(promotion.speedup.low, kPromotionBound);
  EXPECT_FALSE(promotion.promoted);
  EXPECT_FALSE(promotion.eager);
  EXPECT_TRUE(promotion.doubtful);
  EXPECT_NE(promotion.reason.find("no smaller median"), std::string::npos) << promotion.reason;
  const CacheRecord record = MakeNegativeRecord(ReluOfEight(), {.target = "cpu:x86-64-v3"}, Found(),
                                                &promotion, {}, Json::object());
  EXPECT_TRUE(CacheRecord::Decode(record.Encode()).ok());
  const Promotion lost = RaceOf(1000, 1020, 1020);
  EXPECT_FALSE(lost.doubtful);
}

TEST(RaceRule, WithoutASmallerMedianThanAtenServesNoEagerCalls) {
  const Promotion promotion = DisturbedRace("aten", "inductor", 0.8);
  EXPECT_EQ(promotion.best_rival, "inductor");
  EXPECT_LT(promotion.speedup.high, 1);
  EXPECT_GT(promotion.Timing()["speedup_over_aten"][0].get<double>(), kPromotionBound);
  EXPECT_FALSE(promotion.promoted);
  EXPECT_FALSE(promotion.eager);
  EXPECT_TRUE(promotion.doubtful);
  EXPECT_NE(promotion.reason.find("not by its medians"), std::string::npos) << promotion.reason;
}

TEST(RaceRule, DoubtfulAgainstInductorServesEagerCalls) {
  const Promotion promotion = DisturbedRace("inductor", "aten", 4);
  EXPECT_EQ(promotion.best_rival, "inductor");
  EXPECT_TRUE(promotion.eager);
  EXPECT_FALSE(promotion.doubtful) << "it is a verdict";
  EXPECT_NE(promotion.reason.find("no smaller median"), std::string::npos) << promotion.reason;
}

TEST(RaceRule, DoubtfulInsideARegionIsDoubtful) {
  const Promotion promotion = DisturbedRace();
  const Promotion part = PlacedIn(RaceOf(1000, 3000, 1200), std::string(64, 'a'), promotion);
  EXPECT_TRUE(part.doubtful);
  const Promotion alone = RaceOf(1000, 3000, 1200, true);
  const Promotion placed = PlacedIn(alone, std::string(64, 'a'), promotion);
  EXPECT_TRUE(placed.eager) << "which is a verdict";
  EXPECT_FALSE(placed.doubtful);
}

TEST(RaceRule, NeedsARival) {
  Track track;
  EXPECT_THROW((void)Race({track.Make("alone", 1)}, track.clock(), {}), CheckError);
  Contestant broken = {"aten", [](int64_t) { return Status::Internal("refused"); }};
  auto race = Race({track.Make("a", 1), broken}, track.clock(), {});
  EXPECT_EQ(race.status().message(), "aten: refused");
}

TEST(Records, AWinnerCanBeStored) {
  const OpSignature signature = ReluOfEight();
  const Promotion promotion = RaceOf(1000, 3000, 1200);
  CacheRecord record = MakeWinnerRecord(signature, {.target = "cpu:x86-64-v3"}, Found(), promotion,
                                        {30, 4.5}, {{"torch", "2.11.0"}});
  EXPECT_EQ(record.key, signature.Key());
  const Json timing = JsonOrNull(record.race()), provenance = JsonOrNull(record.provenance);
  EXPECT_NEAR(timing["winner_us"].get<double>(), 1.0, 0.02);
  EXPECT_NEAR(timing["aten_us"].get<double>(), 3.0, 0.05);
  EXPECT_NEAR(timing["inductor_us"].get<double>(), 1.2, 0.02);
  EXPECT_EQ(record.SpeedupLow(), promotion.speedup.low);
  EXPECT_EQ(provenance["author"], "generator:rows");
  EXPECT_EQ(provenance["candidates_tried"], 2);
  EXPECT_EQ(provenance["budget_s"], 30);
  EXPECT_EQ(provenance["forge_seconds"], 4.5);
  EXPECT_FALSE(provenance.contains("out_of_time"));
  auto store = MakeMemoryKernelStore();
  EXPECT_TRUE(store->Put(record).ok());
  EXPECT_TRUE(CacheRecord::Decode(record.Encode()).ok());
  EXPECT_TRUE(Candidate::FromJson(ParseJson(record.variants[0].candidate).value()).ok());
  EXPECT_TRUE(OpSignature::Parse(record.signature).ok());
}

TEST(Records, AKernelForEagerCallsCanBeStored) {
  const Promotion promotion = RaceOf(1000, 3000, 900, true);
  const CacheRecord record = MakeWinnerRecord(ReluOfEight(), {.target = "cpu:x86-64-v3"}, Found(),
                                              promotion, {30, 4.5}, {{"torch", "2.11.0"}});
  EXPECT_FALSE(record.Serves().compiled);
  EXPECT_TRUE(record.Serves().eager);
  EXPECT_NEAR(JsonOrNull(record.race())["speedup_over_aten"][1].get<double>(), 3, 0.05);
  EXPECT_EQ(JsonOrNull(record.provenance)["reason"], promotion.reason);
  EXPECT_EQ(JsonOrNull(record.provenance)["why"], "not_faster");
  EXPECT_TRUE(MakeMemoryKernelStore()->Put(record).ok());
}

TEST(RaceRule, PartMustWinAloneAndInPlace) {
  const Promotion won = RaceOf(1000, 3000, 1200), lost = RaceOf(1000, 1000, 1000);
  const Promotion both = PlacedIn(won, std::string(64, 'a'), won);
  EXPECT_TRUE(both.promoted);
  EXPECT_EQ(both.within["key"], std::string(64, 'a'));
  const Promotion alone = PlacedIn(won, std::string(64, 'b'), lost);
  EXPECT_FALSE(alone.promoted);
  EXPECT_EQ(alone.reason, "faster alone (" + won.reason +
                              "), but not inside the region bbbbbbbbbbbb (" + lost.reason + ")");
  EXPECT_FALSE(PlacedIn(lost, std::string(64, 'c'), won).promoted);
  const CacheRecord record = MakeNegativeRecord(ReluOfEight(), {.target = "cpu:x86-64-v3"}, Found(),
                                                &alone, {}, Json::object());
  EXPECT_EQ(JsonOrNull(record.provenance)["why"], "not_within");
  const Json timing = JsonOrNull(record.timing);
  EXPECT_NEAR(timing["inductor_us"].get<double>(), 1.2, 0.02);
  EXPECT_NEAR(timing["within"]["inductor_us"].get<double>(), 1.0, 0.02);
  EXPECT_TRUE(CacheRecord::Decode(record.Encode()).ok());
}

TEST(Records, ANegativeEntryCanBeStored) {
  const Promotion promotion = RaceOf(1000, 1000, 1000);
  const DeviceArch arch = {.target = "cuda:sm_90a"};
  CacheRecord lost =
      MakeNegativeRecord(ReluOfEight(), arch, Found(), &promotion, {}, Json::object());
  EXPECT_EQ(JsonOrNull(lost.provenance)["reason"], promotion.reason);
  EXPECT_EQ(JsonOrNull(lost.provenance)["why"], "not_faster");
  SearchOutcome nothing;
  nothing.reason = "no candidate was right";
  CacheRecord none = MakeNegativeRecord(ReluOfEight(), arch, nothing, nullptr, {}, Json::object());
  const Json provenance = JsonOrNull(none.provenance);
  EXPECT_EQ(provenance["reason"], "no candidate was right");
  EXPECT_EQ(provenance["why"], "none_tried");
  EXPECT_FALSE(provenance.contains("out_of_time"));
  CacheRecord unraced =
      MakeNegativeRecord(ReluOfEight(), arch, Found(), nullptr, {}, Json::object());
  EXPECT_EQ(JsonOrNull(unraced.provenance)["out_of_time"], true);
  EXPECT_EQ(JsonOrNull(unraced.provenance)["why"], "not_raced");
  for (const CacheRecord& record : {lost, none, unraced}) {
    EXPECT_FALSE(record.has_kernel());
    EXPECT_TRUE(CacheRecord::Decode(record.Encode()).ok());
  }
  EXPECT_THROW(MakeWinnerRecord(ReluOfEight(), arch, Found(), promotion, {}, {}), CheckError);
}

}  // namespace
}  // namespace cudaforge
