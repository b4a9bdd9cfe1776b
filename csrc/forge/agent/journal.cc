#include "forge/agent/journal.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace cudaforge {
namespace {

// A time that is better by less is no progress: the next measurement may say otherwise.
constexpr double kGain = 0.99;
constexpr double kBarelySlower = 1 + 1e-9;

// Fills in what an earlier call cost where its price was unknown then.
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

Journal::Journal(Settings settings, AgentCalls* calls)
    : settings_(std::move(settings)), calls_(calls), began_(settings_.clock()), marked_(began_) {}

Status Journal::Load(const std::vector<Json>& earlier, const Prices& prices) {
  for (const Json& json : earlier) {
    Result<AgentNode> node = AgentNode::FromJson(json);
    if (!node.ok()) continue;
    spent_before_ += node->seconds;
    device_seconds_ += node->device_seconds;
    for (LedgerEntry& call : node->calls) {
      CF_RETURN_IF_ERROR(PriceEarlier(prices, calls_->budget(), &call));
      calls_->AddEarlier(call);
    }
    if (node->candidate.has_value() && node->evaluated && !node->duplicate_of.has_value()) {
      NoteTried(*node->candidate, node->id);
    }
    Count(*node);
    nodes_.push_back(*std::move(node));
  }
  entered_ = calls_->ledger().entries().size();
  if (!nodes_.empty() && settings_.progress) {
    settings_.progress(
        {{"event", "resumed"}, {"nodes", nodes_.size()}, {"ledger", Costs().ToJson()}});
  }
  return Status::Ok();
}

void Journal::Refresh(size_t index, const Findings& today) {
  AgentNode& node = nodes_[index];
  if (!today.verdict.accepted()) {
    const int id = node.id;
    for (AgentNode& other : nodes_) {
      if (other.id == id || other.duplicate_of == id) Refuse(&other, today);
    }
    if (best() == nullptr) gained_ns_ = std::numeric_limits<double>::infinity();
    return;
  }
  static_cast<Findings&>(node) = today;
  if (!today.ns.has_value()) return;
  gained_ns_ = std::max(std::isfinite(gained_ns_) ? gained_ns_ : 0, *node.ns);
  for (AgentNode& other : nodes_) {
    const bool same = &other == &node;
    if (!same && other.correct()) other.ns = std::max(*other.ns, *node.ns * kBarelySlower);
  }
}

void Journal::Refuse(AgentNode* node, const Findings& today) {
  const std::string_view before = VerdictName(node->verdict.kind);
  node->judged_before = {{"verdict", before}};
  if (node->ns.has_value()) node->judged_before["ns"] = FloatToJson(*node->ns);
  static_cast<Findings&>(*node) = today;
  const Json json = node->ToJson();
  if (*settings_.sink) (*settings_.sink)(json);
  if (settings_.progress) {
    settings_.progress({{"event", "rejudged"},
                        {"round", node->id},
                        {"before", before},
                        {"verdict", VerdictName(node->verdict.kind)},
                        {"message", json["verdict"]["message"]}});
  }
}

AgentNode Journal::NewNode(StepKind kind, const AgentNode* parent) const {
  AgentNode node;
  for (const AgentNode& earlier : nodes_) node.id = std::max(node.id, earlier.id + 1);
  node.kind = kind;
  if (parent != nullptr) node.parent = parent->id;
  node.session = settings_.session;
  node.author = settings_.author;
  node.rival_ns = settings_.rival_ns;
  return node;
}

const AgentNode* Journal::FindTried(const Candidate& candidate) const {
  const auto known = tried_.find(CandidateDigest(candidate));
  if (known == tried_.end()) return nullptr;
  const auto node = std::find_if(nodes_.begin(), nodes_.end(),
                                 [&](const AgentNode& other) { return other.id == known->second; });
  return node != nodes_.end() ? &*node : nullptr;
}

void Journal::NoteTried(const Candidate& candidate, int id) {
  tried_.emplace(CandidateDigest(candidate), id);
}

void Journal::Count(const AgentNode& node) {
  if (node.kind != StepKind::kStart && node.answered && !node.calls.empty()) {
    ++rounds_;
    ++without_gain_;
  }
  if (node.correct() && *node.ns < kGain * gained_ns_) {
    gained_ns_ = *node.ns;
    without_gain_ = 0;
  }
}

void Journal::Charge(AgentNode* node) const {
  const auto& entries = calls_->ledger().entries();
  node->calls.assign(entries.begin() + static_cast<std::ptrdiff_t>(entered_), entries.end());
  node->seconds = settings_.clock() - marked_;
}

void Journal::KeepUnevaluated(AgentNode node) const {
  node.evaluated = false;
  node.verdict = {VerdictKind::kNotJudged, "not verified: the session was cut off", Json::object()};
  KeepOpen(std::move(node));
}

void Journal::KeepUnanswered(AgentNode node) const {
  node.answered = false;
  node.verdict = {VerdictKind::kRefused, "no reply: the session was cut off", Json::object()};
  KeepOpen(std::move(node));
}

void Journal::KeepOpen(AgentNode node) const {
  if (!*settings_.sink) return;
  Charge(&node);
  (*settings_.sink)(node.ToJson());
}

int Journal::Interrupted(const Candidate& candidate) const {
  const std::string digest = CandidateDigest(candidate);
  return static_cast<int>(std::count_if(nodes_.begin(), nodes_.end(), [&](const AgentNode& node) {
    return !node.evaluated && node.candidate.has_value() &&
           CandidateDigest(*node.candidate) == digest;
  }));
}

void Journal::Finish(AgentNode node) {
  Charge(&node);
  entered_ = calls_->ledger().entries().size();
  marked_ += node.seconds;
  device_seconds_ += node.device_seconds;

  const AgentNode* before = best();
  const bool is_best = node.correct() && (before == nullptr || *node.ns < *before->ns);
  Count(node);
  Json json = node.ToJson();
  if (*settings_.sink) (*settings_.sink)(json);
  Json event = {{"event", "candidate"},
                {"round", node.id},
                {"kind", StepKindName(node.kind)},
                {"verdict", VerdictName(node.verdict.kind)},
                {"message", json["verdict"]["message"]},
                {"best", is_best},
                {"advice", json["advice"]}};
  const LedgerSum cost = SumOf(node.calls);
  event["input_tokens"] = cost.input_tokens;
  event["cached_input_tokens"] = cost.cached_input_tokens;
  event["output_tokens"] = cost.output_tokens;
  event["replayed"] = cost.replayed;
  event["seconds"] = node.seconds;
  event["device_seconds"] = node.device_seconds;
  event["usd"] = cost.unpriced == 0 ? Json(cost.usd) : Json();
  if (node.ns.has_value()) event["ns"] = FloatToJson(*node.ns);
  if (node.correct() && node.rival_ns.has_value() && *node.ns > 0) {
    event["speedup"] = FloatToJson(*node.rival_ns / *node.ns);
  }
  if (node.duplicate_of.has_value()) event["duplicate_of"] = *node.duplicate_of;
  const Json& note = MemberOrNull(node.profile, "note");
  if (MemberOrNull(node.profile, "metrics").empty() && note.is_string() && note != "") {
    event["no_counters"] = note;
  }
  if (settings_.progress) settings_.progress(event);
  lineage_.push_back(std::move(json));
  nodes_.push_back(std::move(node));
}

Ledger Journal::Costs() const {
  Ledger costs = calls_->ledger();
  costs.SetWork(seconds(), device_seconds_);
  return costs;
}

}  // namespace cudaforge
