#include <algorithm>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "forge/forge.h"

namespace cudaforge {
namespace {

// All bits set is NaN in every floating dtype and -1 in the integers; the other is a small ordinary
// number.
constexpr uint8_t kPoisons[] = {0xFF, 0x2B};
constexpr size_t kMaxLogBytes = 4096;
constexpr size_t kMaxVerified = 4;

Verdict TooSlow() { return {VerdictKind::kTooSlow, "slower than the best", Json::object()}; }

Verdict NotVerified(const std::string& why) {
  return {VerdictKind::kNotJudged, "not verified: " + why, Json::object()};
}

class Search {
 public:
  Search(const OpSignature& signature, CandidateRunner& runner, const RegionChecker& checker,
         const ForgeBudget& budget)
      : signature_(signature), runner_(runner), checker_(checker), budget_(budget) {}

  Result<SearchOutcome> Run(CandidateSearch& search, const ForgeProgress& progress);

 private:
  // A trial that was right on the first input set, and its place in the lineage.
  struct Ranked {
    Trial trial;
    size_t index;
  };

  double Seconds() const { return SteadySeconds() - start_; }
  // What verifying a candidate takes, as far as is known.
  double VerifySeconds() const {
    return slowest_case_ * static_cast<double>(checker_.case_count());
  }
  // True when no other candidate may begin. What verifying one will cost is kept in reserve as soon
  // as there is one to verify; the first may take all that there is.
  bool Spent() {
    const bool first = outcome_.lineage.empty();
    if (!first && Seconds() + (ranked_.empty() ? 0 : VerifySeconds()) >= budget_.seconds) {
      spent_ = true;
    }
    if (Seconds() + slowest_try_ >= budget_.limit) spent_ = true;
    return spent_;
  }

  // The search phase: until the space, the patience or the budget is spent, or the runner fails.
  Status TryAll(CandidateSearch& search, const ForgeProgress& progress);
  // Fills the trial's verdict, time and binary. Errors are the runner's own.
  Status Try(Trial* trial);
  // One run on input set `i`, judged; a verdict that is not accepted stays in the trial.
  Status RunCase(size_t i, const RunPlan& plan, Trial* trial);
  // The final phase: sets the best, and the verdict of every ranked trial.
  Status VerifyFastest(const ForgeProgress& progress);
  Status Verify(Trial* trial);
  Json Node(const Trial& trial, double seconds) const;
  // What the fastest of the candidates that passed the first input set, or else the first tried,
  // failed at. Empty where none was tried.
  std::string WhyNoneRight() const;

  const OpSignature& signature_;
  CandidateRunner& runner_;
  const RegionChecker& checker_;
  const ForgeBudget budget_;
  const double start_ = SteadySeconds();
  bool spent_ = false;
  double slowest_case_ = 0, slowest_try_ = 0;  // seconds
  double best_ns_ = std::numeric_limits<double>::infinity();
  std::vector<Ranked> ranked_;
  SearchOutcome outcome_;
};

Status Search::RunCase(size_t i, const RunPlan& plan, Trial* trial) {
  const double began = Seconds();
  CF_ASSIGN_OR_RETURN(RunOutput run, runner_.Run(trial->binary, trial->candidate, signature_,
                                                 checker_.inputs(i), plan));
  trial->verdict = run.verdict.accepted() ? checker_.Check(i, run.outputs) : run.verdict;
  if (!trial->verdict.accepted()) trial->verdict.evidence["input_set"] = checker_.inputs(i).name;
  // A crash, a hang or a closer look at what is wrong says nothing of what a right one's run costs.
  if (trial->verdict.accepted()) slowest_case_ = std::max(slowest_case_, Seconds() - began);
  return Status::Ok();
}

Status Search::Try(Trial* trial) {
  Verdict& verdict = trial->verdict;
  Status valid = trial->candidate.Validate(signature_);
  if (!valid.ok()) {
    verdict = {VerdictKind::kRefused, valid.message(), Json::object()};
    return Status::Ok();
  }
  CF_ASSIGN_OR_RETURN(CompileResult compiled, runner_.Compile(trial->candidate));
  if (!compiled.ok && Seconds() >= budget_.limit) {  // its timeout
    spent_ = true;
    return Status::Ok();
  }
  if (!compiled.ok) {
    verdict = {VerdictKind::kCompileError,
               "does not compile",
               {{"log", compiled.log.substr(0, kMaxLogBytes)}}};
    return Status::Ok();
  }
  trial->binary = std::move(compiled.binary);
  trial->resources = std::move(compiled.resources);
  if (Spent()) return Status::Ok();
  CF_RETURN_IF_ERROR(RunCase(0, {.poison = kPoisons[0]}, trial));
  // With nothing in hand yet, the first right one is timed and kept.
  if (!verdict.accepted() || (!ranked_.empty() && Spent())) return Status::Ok();
  TimingPlan plan;
  plan.abandon_ns = 2 * best_ns_;
  CF_ASSIGN_OR_RETURN(trial->worker_ns, runner_.Time(trial->binary, trial->candidate, signature_,
                                                     checker_.inputs(0), plan));
  if (*trial->worker_ns >= best_ns_) verdict = TooSlow();
  return Status::Ok();
}

Status Search::Verify(Trial* trial) {
  for (size_t i = 0; i < checker_.case_count(); ++i) {
    if (Seconds() + slowest_case_ * static_cast<double>(checker_.case_count() - i) >
        budget_.limit) {
      spent_ = true;
      trial->verdict = NotVerified("no time was left");
      return Status::Ok();
    }
    const bool odd = i % 2 == 1;
    RunPlan plan;
    plan.poison = kPoisons[odd ? 0 : 1];  // the first set has seen the other one
    plan.fence = odd ? RunPlan::Fence::kBefore : RunPlan::Fence::kAfter;
    plan.again = i == 0;
    plan.new_thread = odd;
    CF_RETURN_IF_ERROR(RunCase(i, plan, trial));
    if (!trial->verdict.accepted()) break;
  }
  return Status::Ok();
}

Status Search::VerifyFastest(const ForgeProgress& progress) {
  std::stable_sort(ranked_.begin(), ranked_.end(), [](const Ranked& a, const Ranked& b) {
    return *a.trial.worker_ns < *b.trial.worker_ns;
  });
  Status fault;
  for (size_t k = 0; k < ranked_.size(); ++k) {
    auto& [trial, index] = ranked_[k];
    Json& node = outcome_.lineage[index];
    const bool verify = !outcome_.best.has_value() && fault.ok() && k < kMaxVerified &&
                        (k == 0 || Seconds() < budget_.seconds);
    if (!verify) {
      node["verdict"] =
          (outcome_.best.has_value() ? TooSlow()
                                     : NotVerified("faster ones failed, or no time was left"))
              .ToJson();
      continue;
    }
    const double began = Seconds();
    fault = Verify(&trial);
    if (!fault.ok()) {
      node["verdict"] = NotVerified("the worker failed").ToJson();
      continue;
    }
    node = Node(trial, node["seconds"].get<double>() + Seconds() - began);
    if (progress) {
      progress({{"event", "verified"},
                {"index", index},
                {"verdict", VerdictName(trial.verdict.kind)},
                {"ns", FloatToJson(*trial.worker_ns)}});
    }
    if (trial.verdict.accepted()) outcome_.best = std::move(trial);
  }
  return fault;
}

Json Search::Node(const Trial& trial, double seconds) const {
  Json node = {{"author", trial.candidate.author},
               {"params", trial.candidate.params},
               {"verdict", trial.verdict.ToJson()},
               {"seconds", seconds}};
  if (trial.worker_ns.has_value()) node["ns"] = FloatToJson(*trial.worker_ns);
  if (!trial.resources.empty()) node["resources"] = trial.resources;
  // A log may hold bytes that are no UTF-8, and cutting it may have split a character.
  return LenientCopy(node);
}

std::string Search::WhyNoneRight() const {
  if (outcome_.lineage.empty()) return "";
  const Json& verdict = outcome_.lineage[ranked_.empty() ? 0 : ranked_.front().index].at("verdict");
  const Json& evidence = verdict.at("evidence");
  std::string why = std::string("; the ") + (ranked_.empty() ? "first" : "fastest") + ": " +
                    verdict.at("message").get<std::string>();
  if (evidence.contains("input_set")) {
    why += " (input set " + evidence.at("input_set").get<std::string>() + ")";
  }
  return why;
}

Status Search::TryAll(CandidateSearch& search, const ForgeProgress& progress) {
  int without_gain = 0;
  outcome_.reason = "tried every candidate";
  while (true) {
    if (static_cast<int>(outcome_.lineage.size()) >= budget_.candidates) {
      outcome_.reason = "tried as many candidates as the budget allows";
      return Status::Ok();
    }
    if (without_gain >= budget_.patience) {
      outcome_.reason = "no candidate was faster for a while";
      return Status::Ok();
    }
    if (Spent()) return Status::Ok();
    std::optional<Candidate> next = search.Next();
    if (!next.has_value()) return Status::Ok();
    const double began = Seconds();
    Trial trial;
    trial.candidate = std::move(*next);
    CF_RETURN_IF_ERROR(Try(&trial));
    if (spent_) return Status::Ok();

    const bool right = trial.worker_ns.has_value();
    const bool best = trial.verdict.accepted();
    slowest_try_ = std::max(slowest_try_, Seconds() - began);
    search.Tell({right, trial.worker_ns});
    outcome_.lineage.push_back(Node(trial, Seconds() - began));
    const size_t index = outcome_.lineage.size() - 1;
    if (progress) {
      Json event = {{"event", "candidate"},
                    {"index", index},
                    {"verdict", VerdictName(trial.verdict.kind)},
                    {"params", trial.candidate.params},
                    {"best", best}};
      if (right) event["ns"] = FloatToJson(*trial.worker_ns);
      progress(event);
    }
    without_gain = best ? 0 : without_gain + 1;
    if (best) best_ns_ = *trial.worker_ns;
    if (right) ranked_.push_back({std::move(trial), index});
  }
}

Result<SearchOutcome> Search::Run(CandidateSearch& search, const ForgeProgress& progress) {
  CF_CHECK(checker_.case_count() > 0);
  outcome_.verification = Json::object();
  Status fault = TryAll(search, progress);
  // A worker that failed once is started afresh for this.
  const Status unverified = VerifyFastest(progress);
  outcome_.out_of_time = spent_;
  if (spent_) outcome_.reason = "the time for this region is spent";
  if (fault.ok()) fault = unverified;
  if (!fault.ok()) {
    if (!outcome_.best.has_value()) return fault;
    outcome_.reason = "the worker failed: " + fault.ToString();
  }
  if (outcome_.best.has_value()) {
    Json cases = Json::array();
    for (size_t i = 0; i < checker_.case_count(); ++i) cases.push_back(checker_.inputs(i).name);
    outcome_.verification = {
        {"report", checker_.Report()}, {"cases", cases}, {"poisons", kPoisons}};
  } else {
    const char* none =
        outcome_.lineage.empty() ? "no candidate was tried: " : "no candidate was right: ";
    outcome_.reason = none + outcome_.reason + WhyNoneRight();
  }
  return std::move(outcome_);
}

class OneCandidate : public CandidateSearch {
 public:
  explicit OneCandidate(const Candidate& candidate) : candidate_(candidate) {}
  std::optional<Candidate> Next() override { return std::exchange(candidate_, std::nullopt); }
  void Tell(const SearchFeedback&) override {}

 private:
  std::optional<Candidate> candidate_;
};

}  // namespace

int TimeoutMs(double seconds, int longest_ms) {
  // Clamped before it is an int, which may be too small for what is left of a large budget.
  return static_cast<int>(std::clamp(seconds * 1e3, 1.0, static_cast<double>(longest_ms)));
}

Result<SearchOutcome> SearchRegion(const OpSignature& signature, CandidateSearch& search,
                                   CandidateRunner& runner, const RegionChecker& checker,
                                   const ForgeBudget& budget, const ForgeProgress& progress) {
  return Search(signature, runner, checker, budget).Run(search, progress);
}

Result<SearchOutcome> SearchRegion(const OpSignature& signature, const DeviceArch& arch,
                                   CandidateRunner& runner, const RegionChecker& checker,
                                   const ForgeBudget& budget, const ForgeProgress& progress) {
  CF_ASSIGN_OR_RETURN(auto search, MakeSearch(signature, arch));
  return SearchRegion(signature, *search, runner, checker, budget, progress);
}

Result<Proof> ProveCandidate(const OpSignature& signature, const Candidate& candidate,
                             CandidateRunner& runner, const RegionChecker& checker,
                             double seconds) {
  OneCandidate search(candidate);
  CF_ASSIGN_OR_RETURN(SearchOutcome outcome,
                      SearchRegion(signature, search, runner, checker,
                                   {.seconds = seconds, .candidates = 1}, nullptr));
  Proof proof;
  proof.trial.candidate = candidate;
  if (outcome.best.has_value()) {
    proof.trial = *std::move(outcome.best);
    proof.verification = std::move(outcome.verification);
    return proof;
  }
  CF_CHECK(outcome.lineage.size() == 1);  // one is always tried
  const Json& node = outcome.lineage[0];
  CF_ASSIGN_OR_RETURN(proof.trial.verdict, Verdict::FromJson(node.at("verdict")));
  if (const Json& ns = MemberOrNull(node, "ns"); ns.is_number()) proof.trial.worker_ns = ns;
  if (node.contains("resources")) proof.trial.resources = node["resources"];
  return proof;
}

}  // namespace cudaforge
