#include "forge/agent/journal.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace cudaforge {
namespace {

// A smaller gain than this may be measurement noise.
constexpr double kGain = 0.99;
constexpr double kBarelySlower = 1 + 1e-9;

// Sets the cost of an earlier call whose price was unknown then.
Status PriceEarlier(const Prices& prices, const AgentBudget& budget, LedgerEntry* call) {
  const bool costs = *call->usage.input_tokens + *call->usage.output_tokens > 0;
  if (call->usd.has_value() || !costs) return Status::Ok();
  const Price* price = prices.Find(call->provider, call->model);
  if (price != nullptr) {
    call->usd = Dollars(*price, call->usage);
  } else if (budget.usd > 0) {
    return Status::InvalidArgument(
        "a limit in dollars needs the price of what was spent before, and " + prices.name() +
        " has none for " + call->provider);
  }
  return Status::Ok();
}

}  // namespace

Journal::Journal(Settings settings, AgentCalls* calls, Population* population)
    : settings_(std::move(settings)),
      calls_(calls),
      population_(population),
      began_(settings_.clock()),
      marked_(began_) {}

Status Journal::Load(const std::vector<Json>& earlier, const Prices& prices) {
  for (const Json& json : earlier) {
    Result<Trial> trial = Trial::FromJson(json);
    if (!trial.ok()) continue;
    spent_before_ += trial->seconds;
    device_seconds_ += trial->device_seconds;
    for (LedgerEntry& call : trial->calls) {
      CF_RETURN_IF_ERROR(PriceEarlier(prices, calls_->budget(), &call));
      calls_->AddEarlier(call);
    }
    Count(*trial);
    population_->Add(*std::move(trial));
  }
  entered_ = calls_->ledger().entries().size();
  const size_t count = population_->trials().size();
  if (count > 0 && settings_.progress) {
    settings_.progress({{"event", "resumed"}, {"nodes", count}, {"ledger", Costs().ToJson()}});
  }
  return Status::Ok();
}

void Journal::Refresh(int id, const Findings& today) {
  Trial& trial = *population_->Find(id);
  if (!today.verdict.accepted()) {
    for (Trial& other : *population_) {
      if (other.id == id || other.duplicate_of == id) Refuse(&other, today);
    }
    if (population_->best() == nullptr) gained_ns_ = std::numeric_limits<double>::infinity();
    return;
  }
  trial.findings() = today;
  if (!today.ns.has_value()) return;
  gained_ns_ = std::max(std::isfinite(gained_ns_) ? gained_ns_ : 0, *trial.ns);
  for (Trial& other : *population_) {
    if (&other != &trial && other.correct()) {
      other.ns = std::max(*other.ns, *trial.ns * kBarelySlower);
    }
  }
}

void Journal::Refuse(Trial* trial, const Findings& today) {
  const std::string_view before = VerdictName(trial->verdict.kind);
  trial->judged_before = {{"verdict", before}};
  if (trial->ns.has_value()) trial->judged_before["ns"] = FloatToJson(*trial->ns);
  trial->findings() = today;
  const Json json = trial->ToJson();
  if (*settings_.sink) (*settings_.sink)(json);
  if (settings_.progress) {
    settings_.progress({{"event", "rejudged"},
                        {"round", trial->id},
                        {"before", before},
                        {"verdict", VerdictName(trial->verdict.kind)},
                        {"message", json["verdict"]["message"]}});
  }
}

void Journal::Begin(Trial* trial) const {
  trial->session = settings_.session;
  trial->rival_ns = settings_.rival_ns;
}

void Journal::Count(const Trial& trial) {
  if (trial.kind != StepKind::kStart && trial.answered && !trial.calls.empty()) {
    ++rounds_;
    ++without_gain_;
  }
  if (trial.correct() && *trial.ns < kGain * gained_ns_) {
    gained_ns_ = *trial.ns;
    without_gain_ = 0;
  }
}

void Journal::Charge(Trial* trial) const {
  const auto& entries = calls_->ledger().entries();
  trial->calls.assign(entries.begin() + static_cast<std::ptrdiff_t>(entered_), entries.end());
  trial->seconds = settings_.clock() - marked_;
}

void Journal::KeepUnevaluated(Trial trial) const {
  trial.evaluated = false;
  trial.verdict = {VerdictKind::kNotJudged, "not verified: the session was cut off",
                   Json::object()};
  KeepOpen(std::move(trial));
}

void Journal::KeepUnanswered(Trial trial) const {
  trial.answered = false;
  trial.verdict = {VerdictKind::kRefused, "no reply: the session was cut off", Json::object()};
  KeepOpen(std::move(trial));
}

void Journal::KeepOpen(Trial trial) const {
  if (!*settings_.sink) return;
  Charge(&trial);
  (*settings_.sink)(trial.ToJson());
}

int Journal::Interrupted(const Candidate& candidate) const {
  const std::string digest = CandidateDigest(candidate);
  const std::vector<Trial>& trials = population_->trials();
  return static_cast<int>(std::count_if(trials.begin(), trials.end(), [&](const Trial& trial) {
    return !trial.evaluated && trial.candidate.has_value() &&
           CandidateDigest(*trial.candidate) == digest;
  }));
}

void Journal::Finish(Trial* finished) {
  Trial& trial = *finished;
  Charge(&trial);
  entered_ = calls_->ledger().entries().size();
  marked_ += trial.seconds;
  device_seconds_ += trial.device_seconds;

  const Trial* before = population_->best();
  const bool is_best = trial.correct() && (before == nullptr || *trial.ns < *before->ns);
  Count(trial);
  const Json json = trial.ToJson();
  if (*settings_.sink) (*settings_.sink)(json);
  Json event = {{"event", "candidate"},
                {"round", trial.id},
                {"kind", StepKindName(trial.kind)},
                {"verdict", VerdictName(trial.verdict.kind)},
                {"message", json["verdict"]["message"]},
                {"best", is_best},
                {"advice", json["advice"]}};
  const LedgerSum cost = SumOf(trial.calls);
  event["input_tokens"] = cost.input_tokens;
  event["cached_input_tokens"] = cost.cached_input_tokens;
  event["output_tokens"] = cost.output_tokens;
  event["replayed"] = cost.replayed;
  event["seconds"] = trial.seconds;
  event["device_seconds"] = trial.device_seconds;
  event["usd"] = cost.unpriced == 0 ? Json(cost.usd) : Json();
  if (trial.ns.has_value()) event["ns"] = FloatToJson(*trial.ns);
  if (trial.correct() && trial.rival_ns.has_value() && *trial.ns > 0) {
    event["speedup"] = FloatToJson(*trial.rival_ns / *trial.ns);
  }
  if (trial.duplicate_of.has_value()) event["duplicate_of"] = *trial.duplicate_of;
  const Json& note = MemberOrNull(trial.profile, "note");
  if (MemberOrNull(trial.profile, "metrics").empty() && note.is_string() && note != "") {
    event["no_counters"] = note;
  }
  if (settings_.progress) settings_.progress(event);
}

Ledger Journal::Costs() const {
  Ledger costs = calls_->ledger();
  costs.SetWork(seconds(), device_seconds_);
  return costs;
}

}  // namespace cudaforge
