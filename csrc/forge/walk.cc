#include "forge/walk.h"

#include <algorithm>
#include <map>

#include "base/clock.h"

namespace cudaforge {
namespace {

constexpr size_t kMaxProven = 4;

Verdict NotVerified(const std::string& why) {
  return {VerdictKind::kNotJudged, "not verified: " + why, Json::object()};
}

class WalkAuthor : public Author {
 public:
  explicit WalkAuthor(Walk walk) : walk_(std::move(walk)) {}
  std::string name() const override { return walk_.name; }

  Status Write(const Brief&, const Population& population, Trial* trial) override {
    for (size_t nth = 0; nth < written_.size(); ++nth) {
      if (written_[nth].told) continue;
      const Trial* earlier = population.Find(written_[nth].id);
      if (earlier == nullptr) continue;  // still running
      walk_.search->Tell(nth, {earlier->ns.has_value(), earlier->ns});
      written_[nth].told = true;
    }
    trial->candidate = walk_.search->Next();
    if (!trial->candidate.has_value()) return Status::NotFound("all is written");
    written_.push_back({trial->id});
    return Status::Ok();
  }

 private:
  struct Written {
    int id;
    bool told = false;
  };
  Walk walk_;
  std::vector<Written> written_;  // the results of Next(), in order
};

class ScreenThenProve : public Policy {
 public:
  ScreenThenProve(std::vector<Walk> walks, const Evaluator& evaluator, const ForgeBudget& budget,
                  const ForgeProgress& progress)
      : evaluator_(evaluator), budget_(budget), progress_(progress) {
    for (Walk& walk : walks) {
      owned_.push_back(std::make_unique<WalkAuthor>(std::move(walk)));
      authors_.push_back(owned_.back().get());
    }
  }

  std::vector<Brief> Ask(const Population&, int slots) override {
    std::vector<Brief> briefs;
    while (screening_ && static_cast<int>(briefs.size()) < slots) {
      reason_ = WhyStop(begun_ + static_cast<int>(briefs.size()));
      screening_ = reason_.empty();
      if (!screening_) break;
      Brief brief;
      brief.author = authors_[turn_++ % authors_.size()];
      brief.depth = Depth::kScreen;
      brief.end = start_ + budget_.limit;
      brief.screen_end = start_ + ScreenEnd();
      // Without a correct candidate so far, the first one is timed and kept.
      if (!ranked_.empty()) brief.screen_end_right = brief.screen_end;
      briefs.push_back(std::move(brief));
    }
    begun_ += static_cast<int>(briefs.size());
    under_way_ += static_cast<int>(briefs.size());
    if (screening_ || under_way_ > 0) return briefs;
    return NextToProve();
  }

  void NothingMore(const Author& author) override {
    --under_way_;
    --begun_;
    std::erase(authors_, &author);
  }

  bool Failed(Trial* trial, const Status& status) override {
    --under_way_;
    const bool out_of_time = status.code() == StatusCode::kTimeout;
    spent_ |= out_of_time;
    const bool screened = std::any_of(ranked_.begin(), ranked_.end(), [trial](const auto& ranked) {
      return ranked.second == trial->id;
    });
    if (!screened) {
      --begun_;
      screening_ = false;
    } else {
      proof_failed_ = !out_of_time;
      settled_[trial->id] = NotVerified(out_of_time ? status.message() : "the verifier failed");
      if (out_of_time) TellProven(*trial, settled_[trial->id].kind);
    }
    if (!out_of_time && fault_.ok()) fault_ = status;
    return false;
  }

  void Tell(Trial* trial, ProvenKernel*) override {
    --under_way_;
    slowest_try_ = std::max(slowest_try_, trial->seconds);
    const bool best = trial->verdict.accepted();
    without_gain_ = best ? 0 : without_gain_ + 1;
    if (trial->ns.has_value()) ranked_.push_back({*trial->ns, trial->id});
    ++tried_;
    if (!progress_) return;
    Json event = {{"event", "candidate"},
                  {"index", trial->id},
                  {"verdict", VerdictName(trial->verdict.kind)},
                  {"params", trial->candidate.has_value() ? trial->candidate->params : Json()},
                  {"best", best}};
    if (trial->ns.has_value()) event["ns"] = FloatToJson(*trial->ns);
    progress_(event);
  }

  void TellAgain(Population* population, int id, Evaluation* found) override {
    --under_way_;
    Trial& trial = *population->Find(id);
    settled_[id] = found->findings.verdict;
    trial.seconds += found->seconds;
    if (found->kernel.has_value()) best_ = std::move(found->kernel);
    TellProven(trial, settled_[id].kind);
  }

  Result<SearchOutcome> Outcome(Population population) {
    SearchOutcome outcome;
    for (const auto& [ns, id] : ranked_) {
      if (settled_.contains(id)) continue;
      settled_[id] = best_.has_value()
                         ? Verdict{VerdictKind::kTooSlow, "slower than the best", Json::object()}
                         : NotVerified("faster ones failed, or no time was left");
    }
    for (const auto& [id, verdict] : settled_) population.Find(id)->verdict = verdict;
    outcome.out_of_time = spent_;
    outcome.reason = spent_ ? "the time for this region is spent" : reason_;
    if (!fault_.ok()) {
      if (!best_.has_value()) return fault_;
      outcome.reason = "the verifier failed: " + fault_.ToString();
    }
    if (!best_.has_value()) {
      outcome.reason =
          (population.trials().empty() ? "no candidate was tried: " : "no candidate was right: ") +
          outcome.reason + WhyNoneRight(population);
    }
    outcome.best = std::move(best_);
    outcome.trials = std::move(population).TakeTrials();
    return outcome;
  }

 private:
  double Seconds() const { return SteadySeconds() - start_; }

  // The latest start of a screening's last step, in seconds from the start. Reserves time for one
  // proof as soon as there is a candidate to prove. The first candidate may use all the time.
  double ScreenEnd() const {
    const double end = budget_.limit - slowest_try_;
    if (tried_ == 0) return end;
    return std::min(end, budget_.seconds - (ranked_.empty() ? 0 : evaluator_.proof_seconds()));
  }
  bool Spent() {
    spent_ = spent_ || Seconds() >= ScreenEnd();
    return spent_;
  }

  std::string WhyStop(int begun) {
    if (begun >= budget_.candidates) return "tried as many candidates as the budget allows";
    if (without_gain_ >= budget_.patience) return "no candidate was faster for a while";
    if (Spent()) return "the time for this region is spent";
    return authors_.empty() ? "tried every candidate" : "";
  }

  std::vector<Brief> NextToProve() {
    if (next_ == 0) std::stable_sort(ranked_.begin(), ranked_.end(), &Faster);
    // If a worker failed during screening, the proof uses a new one.
    const bool prove = next_ < std::min(ranked_.size(), kMaxProven) && !best_.has_value() &&
                       !proof_failed_ && (next_ == 0 || Seconds() < budget_.seconds);
    if (!prove) return {};
    ++under_way_;
    Brief brief;
    brief.again = ranked_[next_++].second;
    brief.end = start_ + budget_.limit;
    return {brief};
  }

  static bool Faster(const std::pair<double, int>& a, const std::pair<double, int>& b) {
    return a.first < b.first;
  }

  void TellProven(const Trial& trial, VerdictKind verdict) const {
    if (!progress_) return;
    progress_({{"event", "verified"},
               {"index", trial.id},
               {"verdict", VerdictName(verdict)},
               {"ns", FloatToJson(*trial.ns)}});
  }

  // The failure of the fastest candidate that passed screening, else of the first one tried.
  std::string WhyNoneRight(const Population& population) const {
    if (population.trials().empty()) return "";
    const Trial& trial =
        ranked_.empty() ? population.trials().front() : *population.Find(ranked_.front().second);
    const Json& set = MemberOrNull(trial.verdict.evidence, "input_set");
    return std::string("; the ") + (ranked_.empty() ? "first" : "fastest") + ": " +
           trial.verdict.message +
           (set.is_string() ? " (input set " + set.get<std::string>() + ")" : "");
  }

  const Evaluator& evaluator_;
  const ForgeBudget budget_;
  const ForgeProgress& progress_;
  const double start_ = SteadySeconds();
  std::vector<std::unique_ptr<WalkAuthor>> owned_;
  std::vector<Author*> authors_;  // those with more candidates
  size_t turn_ = 0;
  bool screening_ = true;
  bool spent_ = false;  // the time is used up
  bool proof_failed_ = false;
  int begun_ = 0, under_way_ = 0, tried_ = 0, without_gain_ = 0;
  double slowest_try_ = 0;                      // seconds
  std::vector<std::pair<double, int>> ranked_;  // ns and trial, of those that passed the screening
  size_t next_ = 0;                             // of ranked_, to be proven
  std::map<int, Verdict> settled_;              // final verdicts of ranked trials
  std::optional<ProvenKernel> best_;
  std::string reason_;
  Status fault_;
};

}  // namespace

Result<std::vector<Walk>> WalksFor(const Task& task) {
  std::vector<Walk> walks;
  Status fault;  // of the first that handles this kind of region
  for (const Generator& generator : Generators()) {
    Result<std::unique_ptr<CandidateSearch>> search = generator.search(task.region, task.arch);
    if (search.ok()) {
      walks.push_back({"generator:" + std::string(generator.name), *std::move(search)});
    } else if (fault.ok() && search.status().code() != StatusCode::kNotFound) {
      fault = search.status();
    }
  }
  if (walks.empty()) return fault;
  return walks;
}

Result<SearchOutcome> SearchWalks(std::vector<Walk> walks, Evaluator& evaluator,
                                  const ForgeBudget& budget, const ForgeProgress& progress) {
  ScreenThenProve policy(std::move(walks), evaluator, budget, progress);
  Population population;
  Forge(policy, evaluator, &population);
  return policy.Outcome(std::move(population));
}

int TimeoutMs(double seconds, int longest_ms) {
  // Clamped before the conversion to int, which a large budget would overflow.
  return static_cast<int>(std::clamp(seconds * 1e3, 1.0, static_cast<double>(longest_ms)));
}

}  // namespace cudaforge
