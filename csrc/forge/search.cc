#include <chrono>
#include <utility>

#include "forge/forge.h"

namespace cudaforge {
namespace {

// All bits set is NaN in every floating dtype and -1 in the integers; the other is a small ordinary
// number.
constexpr uint8_t kPoisons[] = {0xFF, 0x2B};
constexpr int kTimingSamples = 15;
constexpr size_t kMaxLogBytes = 4096;

class Search {
 public:
  Search(const OpSignature& signature, CandidateRunner& runner, const RegionChecker& checker,
         const ForgeBudget& budget)
      : signature_(signature), runner_(runner), checker_(checker), budget_(budget) {}

  Result<SearchOutcome> Run(CandidateSearch& search, const ForgeProgress& progress);

 private:
  double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  // True when the budget is spent: the trial under way is given up.
  bool Spent() {
    if (Seconds() >= budget_.seconds) spent_ = true;
    return spent_;
  }

  // Fills the trial's verdict, time and binary. Errors are the runner's own.
  Status Try(Trial* trial);
  // One run on input set `i`, judged; a verdict that is not accepted stays in the trial.
  Status RunCase(size_t i, uint8_t poison, Trial* trial);
  Json Node(const Trial& trial, double seconds) const;

  const OpSignature& signature_;
  CandidateRunner& runner_;
  const RegionChecker& checker_;
  const ForgeBudget budget_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  bool spent_ = false;
  SearchOutcome outcome_;
};

Status Search::RunCase(size_t i, uint8_t poison, Trial* trial) {
  CF_ASSIGN_OR_RETURN(RunOutput run, runner_.Run(trial->binary, trial->candidate, signature_,
                                                 checker_.inputs(i), poison));
  trial->verdict = run.verdict.accepted() ? checker_.Check(i, run.outputs) : run.verdict;
  if (!trial->verdict.accepted()) trial->verdict.evidence["input_set"] = checker_.inputs(i).name;
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
  if (!compiled.ok) {
    verdict = {VerdictKind::kCompileError,
               "does not compile",
               {{"log", compiled.log.substr(0, kMaxLogBytes)}}};
    return Status::Ok();
  }
  trial->binary = std::move(compiled.binary);
  for (uint8_t poison : kPoisons) {
    if (Spent()) return Status::Ok();
    CF_RETURN_IF_ERROR(RunCase(0, poison, trial));
    if (!verdict.accepted()) return Status::Ok();
  }
  if (Spent()) return Status::Ok();
  CF_ASSIGN_OR_RETURN(trial->worker_ns, runner_.Time(trial->binary, trial->candidate, signature_,
                                                     checker_.inputs(0), kTimingSamples));
  if (outcome_.best.has_value() && *trial->worker_ns >= *outcome_.best->worker_ns) {
    // Its other answers no longer matter, and the budget does.
    verdict = {VerdictKind::kTooSlow, "slower than the best so far", Json::object()};
    return Status::Ok();
  }
  for (size_t i = 1; i < checker_.case_count(); ++i) {
    if (Spent()) return Status::Ok();
    CF_RETURN_IF_ERROR(RunCase(i, kPoisons[i % 2], trial));
    if (!verdict.accepted()) return Status::Ok();
  }
  return Status::Ok();
}

Json Search::Node(const Trial& trial, double seconds) const {
  Json node = {{"author", trial.candidate.author},
               {"params", trial.candidate.params},
               {"verdict", trial.verdict.ToJson()},
               {"seconds", seconds}};
  if (trial.worker_ns.has_value()) node["ns"] = FloatToJson(*trial.worker_ns);
  // A log may hold bytes that are no UTF-8, and cutting it may have split a character.
  return Json::parse(node.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Result<SearchOutcome> Search::Run(CandidateSearch& search, const ForgeProgress& progress) {
  CF_CHECK(checker_.case_count() > 0);
  Status fault;
  int without_gain = 0;
  outcome_.verification = Json::object();
  outcome_.reason = "tried every candidate";
  while (true) {
    if (static_cast<int>(outcome_.lineage.size()) >= budget_.candidates) {
      outcome_.reason = "tried as many candidates as the budget allows";
      break;
    }
    if (without_gain >= budget_.patience) {
      outcome_.reason = "no candidate was faster for a while";
      break;
    }
    if (Spent()) break;
    std::optional<Candidate> next = search.Next();
    if (!next.has_value()) break;
    const double began = Seconds();
    Trial trial;
    trial.candidate = std::move(*next);
    fault = Try(&trial);
    if (!fault.ok() || spent_) break;

    const bool right = trial.verdict.accepted() || trial.verdict.kind == VerdictKind::kTooSlow;
    const bool best = trial.verdict.accepted();
    search.Tell({right, right ? trial.worker_ns : std::nullopt});
    outcome_.lineage.push_back(Node(trial, Seconds() - began));
    if (progress) {
      Json event = {{"event", "candidate"},
                    {"index", outcome_.lineage.size() - 1},
                    {"verdict", VerdictName(trial.verdict.kind)},
                    {"params", trial.candidate.params},
                    {"best", best}};
      if (trial.worker_ns.has_value()) event["ns"] = FloatToJson(*trial.worker_ns);
      progress(event);
    }
    without_gain = best ? 0 : without_gain + 1;
    if (best) outcome_.best = std::move(trial);
  }
  if (!fault.ok()) {
    if (!outcome_.best.has_value()) return fault;
    outcome_.reason = "the worker failed: " + fault.ToString();
  } else if (spent_) {
    outcome_.reason = "the time for this region is spent";
  }
  if (outcome_.best.has_value()) {
    Json cases = Json::array();
    for (size_t i = 0; i < checker_.case_count(); ++i) cases.push_back(checker_.inputs(i).name);
    outcome_.verification = {
        {"report", checker_.Report()}, {"cases", cases}, {"poisons", kPoisons}};
  } else {
    outcome_.reason = "no candidate was right: " + outcome_.reason;
  }
  outcome_.seconds = Seconds();
  return std::move(outcome_);
}

class SingleSearch : public CandidateSearch {
 public:
  explicit SingleSearch(Candidate candidate) : candidate_(std::move(candidate)) {}
  std::optional<Candidate> Next() override { return std::exchange(candidate_, std::nullopt); }
  void Tell(const SearchFeedback&) override {}

 private:
  std::optional<Candidate> candidate_;
};

}  // namespace

std::unique_ptr<CandidateSearch> MakeSingleSearch(Candidate candidate) {
  return std::make_unique<SingleSearch>(std::move(candidate));
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

}  // namespace cudaforge
