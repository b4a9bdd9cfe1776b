#include "forge/agent/agent_policy.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace cudaforge {
namespace {

// A kernel cannot exceed the device's limit. Above this share the floor is wrong (inputs stay in a
// cache, or the rates were measured on a busy machine), and does not end the session.
constexpr double kPossible = 1.05;
// Successive candidates that could not be judged, for reasons that are not their fault.
constexpr int kMaxFaults = 2;
// A candidate is given up after this many sessions that ended while it was judged.
constexpr int kMaxInterruptions = 1;

}  // namespace

AgentPolicy::AgentPolicy(Parts parts, const Population& population)
    : parts_(parts), population_(population) {
  std::vector<const Trial*> right;
  for (const Trial& trial : population.trials()) {
    if (trial.correct() && !trial.duplicate_of.has_value()) right.push_back(&trial);
  }
  std::stable_sort(right.begin(), right.end(),
                   [](const Trial* a, const Trial* b) { return *a->ns < *b->ns; });
  for (const Trial* trial : right) earlier_.push_back(trial->id);
}

const Trial* AgentPolicy::Interrupted() const {
  const std::vector<Trial>& trials = population_.trials();
  const bool interrupted =
      !trials.empty() && !trials.back().evaluated && trials.back().candidate.has_value();
  return interrupted ? &trials.back() : nullptr;
}

std::vector<Brief> AgentPolicy::Ask(const Population&, int) {
  if (under_way_) return {};
  std::optional<Brief> next = Next();
  if (!next.has_value()) return {};
  under_way_ = true;
  return {*std::move(next)};
}

// Earlier results may be out of date: the best earlier trials and the start are re-tested before
// any agent is called.
std::optional<Brief> AgentPolicy::Next() {
  Brief brief;
  const std::optional<Candidate>& start = parts_.settings.start;
  if (stage_ == Stage::kEarlier && !earlier_.empty()) {
    brief.again = earlier_.front();
    earlier_.pop_front();
    return brief;
  }
  if (stage_ == Stage::kEarlier) {
    stage_ = Stage::kInterrupted;
    const Trial* tried = start.has_value() ? population_.FindTried(*start) : nullptr;
    if (tried != nullptr) TakeRival(*tried);
  }
  if (stage_ == Stage::kInterrupted) {
    if (const Trial* trial = Interrupted()) {
      brief.kind = trial->kind;
      brief.parents = trial->parents;
      brief.candidate = trial->candidate;
      return brief;
    }
    stage_ = Stage::kStart;
    if (start.has_value() && population_.FindTried(*start) == nullptr) {
      brief.kind = StepKind::kStart;
      brief.candidate = start;
      return brief;
    }
  }
  stage_ = Stage::kRounds;
  End(WhyStop());
  if (!reason_.empty()) return std::nullopt;
  const Step step = parts_.strategy.Choose(population_.trials());
  brief.kind = step.kind;
  brief.author = parts_.author;
  if (step.parent != nullptr) brief.parents.push_back(step.parent->id);
  return brief;
}

void AgentPolicy::Begin(Trial* trial) {
  if (stage_ == Stage::kInterrupted) {
    const Trial& interrupted = *Interrupted();
    trial->author = interrupted.author;
    trial->advice = interrupted.advice;
    trial->prompts = interrupted.prompts;
  }
  if (stage_ == Stage::kStart) trial->author = trial->candidate->author;
  parts_.journal->Begin(trial);
  Json event = {{"event", "round"},
                {"round", trial->id},
                {"kind", StepKindName(trial->kind)},
                {"parent", trial->parents.empty() ? Json() : Json(trial->parents.front())}};
  const std::string& near = parts_.settings.start_near;
  if (stage_ == Stage::kStart && !near.empty()) event["near"] = near;
  if (parts_.progress) parts_.progress(event);
}

bool AgentPolicy::MayEvaluate(Trial* trial) {
  if (stage_ == Stage::kStart) return true;  // it costs nothing to start with it another time
  if (stage_ == Stage::kInterrupted &&
      parts_.journal->Interrupted(*trial->candidate) > kMaxInterruptions) {
    trial->verdict = {VerdictKind::kCrashed,
                      "each attempt to judge it was interrupted: it may crash this process",
                      Json()};
    return false;
  }
  parts_.journal->KeepUnevaluated(*trial);
  return true;
}

bool AgentPolicy::Failed(Trial* trial, const Status& status) {
  under_way_ = false;
  const bool cancelled = status.code() == StatusCode::kCancelled;
  const bool round = stage_ == Stage::kRounds;
  if (!trial->candidate.has_value()) {
    const std::string over = WhyStop();  // the end of the budget may have cut the call
    const bool asked = status.code() != StatusCode::kInvalidArgument;
    const std::string why = asked && !over.empty() ? over : status.message();
    End(why);
    if (!parts_.journal->has_open_calls()) return false;  // it cost nothing
    trial->answered = false;
    trial->verdict = {VerdictKind::kRefused, "no reply: " + why, Json::object()};
    return true;
  }
  if (cancelled || stage_ == Stage::kEarlier) {
    if (!cancelled) End("candidates cannot be run: " + status.ToString());
    if (!round) {  // the earlier result stays valid
      stage_ = Stage::kRounds;
      return false;
    }
    trial->evaluated = false;
    trial->verdict = {VerdictKind::kNotJudged, "not verified: cancelled", Json::object()};
    return true;
  }
  // A built-in kernel, or two of a Coder's in a row: probably not their fault.
  trial->verdict = {VerdictKind::kCrashed, "could not be judged: " + status.ToString(),
                    Json::object()};
  faulty_ = true;
  faults_ += trial->kind == StepKind::kStart ? kMaxFaults : 1;
  if (faults_ >= kMaxFaults) End("candidates cannot be run: " + status.ToString());
  return true;
}

void AgentPolicy::Tell(Trial* trial, ProvenKernel* kernel) {
  under_way_ = false;
  const bool ran = trial->judged() && trial->candidate.has_value();
  if (ran && !trial->duplicate_of.has_value() && !std::exchange(faulty_, false)) faults_ = 0;
  if (kernel != nullptr) Keep(kernel);
  if (stage_ == Stage::kStart) {
    TakeRival(*trial);
    trial->rival_ns = parts_.journal->rival_ns();
  }
  parts_.journal->Finish(trial);
}

void AgentPolicy::TellAgain(Population*, int id, Evaluation* found) {
  under_way_ = false;
  parts_.journal->Refresh(id, found->findings);
  if (!found->kernel.has_value()) return;
  Keep(&*found->kernel);
  earlier_.clear();
}

void AgentPolicy::Keep(ProvenKernel* kernel) {
  if (best_.has_value() && kernel->ns >= best_->ns) return;
  best_ = std::move(*kernel);
}

void AgentPolicy::TakeRival(const Trial& start) {
  const AgentSettings& settings = parts_.settings;
  if (!settings.start_is_rival) return;
  if (start.correct()) {
    parts_.journal->SetRival(*start.ns);
    parts_.prompts->SetRival(RivalText(settings.rival, start.ns));
  }
  ReportRival(settings, start.correct() ? start.ns : settings.rival_ns, parts_.progress);
}

std::string AgentPolicy::WhyStop() const {
  const AgentBudget& budget = parts_.settings.budget;
  const Journal& journal = *parts_.journal;
  if (parts_.cancel.IsSet()) return "cancelled";
  if (!reason_.empty()) return reason_;
  if (journal.rounds() >= budget.rounds) {
    return "made as many rounds as the budget allows (" + std::to_string(budget.rounds) + ")";
  }
  if (journal.seconds() >= budget.seconds) return "the time of the budget is spent";
  if (journal.without_gain() >= budget.patience) {
    return "no gain in " + std::to_string(journal.without_gain()) + " rounds";
  }
  const Trial* best = population_.best();
  const double reached = best != nullptr && *best->ns > 0 ? parts_.floor_ns / *best->ns : 0;
  if (budget.roofline > 0 && reached >= budget.roofline && reached <= kPossible) {
    return "the best kernel runs at " + Significant(reached * 100, 3) +
           "% of what the device allows";
  }
  return "";
}

}  // namespace cudaforge
