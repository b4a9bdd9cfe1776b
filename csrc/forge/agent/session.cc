#include "forge/agent/session.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "forge/agent/agent_calls.h"
#include "forge/agent/agent_prompts.h"
#include "forge/agent/coder.h"
#include "forge/agent/evaluate.h"
#include "forge/agent/judge.h"
#include "forge/agent/node.h"
#include "forge/agent/strategy.h"
#include "forge/agent/triton.h"
#include "measure/roofline.h"

namespace cudaforge {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// A time that is better by less is no progress: the next measurement may say otherwise.
constexpr double kGain = 0.99;
constexpr double kBarelySlower = 1 + 1e-9;
constexpr size_t kMaxKeptReply = size_t{64} << 10;
// Candidates in a row that could not be judged through no fault of their own.
constexpr int kMaxFaults = 2;

double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string Rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g", value);
  return text;
}

Json DeviceFor(const DeviceArch& arch, const Json& facts) {
  Json device = arch.properties.is_object() ? arch.properties : Json::object();
  device["arch"] = arch.target;
  device.update(facts);
  return device;
}

std::string RivalText(const AgentSettings& settings) {
  if (!settings.rival_ns.has_value()) return settings.rival;
  const std::string name = settings.rival.empty() ? "the best so far" : settings.rival;
  return name + ", " + Rounded(*settings.rival_ns / 1e3) + " us";
}

// What DerivedFacts knows of any kernel for the region.
Json FloorOf(const OpSignature& signature, const Json& facts) {
  const Json derived = DerivedFacts(Json(), facts, signature, 0);
  Json floor = Json::object();
  for (const char* field : {"needed_bytes", "needed_flops", "floor_us"}) {
    if (derived.contains(field)) floor[field] = derived[field];
  }
  return floor.empty() ? Json() : floor;
}

class Session {
 public:
  Session(const OpSignature& signature, const DeviceArch& arch, CandidateRunner& runner,
          const RegionChecker& checker, const AgentSettings& settings, const NodeSink& sink,
          const ForgeProgress& progress)
      : settings_(settings),
        sink_(sink),
        progress_(progress),
        cancel_(settings.cancel != nullptr ? *settings.cancel : never_),
        began_(Now()),
        marked_(began_),
        calls_({settings.budget, settings.prices, settings.limits,
                [this] { return spent_before_ + Now() - began_; }, progress},
               cancel_),
        coder_(settings.coder, &calls_, ReaderOf(signature, arch)),
        evaluator_(signature, runner, checker, settings.metrics, cancel_),
        floor_(FloorOf(signature, evaluator_.facts())),
        prompts_({&signature, arch.target, DeviceFor(arch, evaluator_.facts()), floor_,
                  RivalText(settings), settings.metrics, settings.max_documents,
                  settings.triton.empty() ? "" : "triton"}),
        strategy_(MakeBestFirst()) {}

  Result<AgentOutcome> Run();

 private:
  double Now() const { return settings_.clock ? settings_.clock() : SteadySeconds(); }
  ReplyReader ReaderOf(const OpSignature& signature, const DeviceArch& arch) const;
  void Tell(const Json& event) const {
    if (progress_) progress_(event);
  }

  // Takes over the nodes of the session that is resumed, and what they spent. An error where a
  // limit in dollars meets spending whose price is unknown.
  Status LoadEarlier();
  Status PriceEarlier(LedgerEntry* call) const;
  // Makes the best of the earlier nodes, and the start, the best of this session. Both are run, as
  // a kernel that was right on another day is to be right today.
  Status TryEarlier();
  Status TryStart();
  // The candidate of the last earlier node, whose session ended before its verdict.
  Status FinishInterrupted();
  Status Round();

  // Why the session ends now; empty: it goes on.
  std::string WhyStop() const;
  // The least time that the device allows over the best kernel's; 0: unknown.
  double OfFloor() const;
  // A node with the next number.
  AgentNode NewNode(StepKind kind, const AgentNode* parent) const;
  std::optional<Advice> AskJudge(const Step& step, AgentNode* node);
  // Fills in the node's verdict and measurements, by running its candidate or from the node that
  // ran it before. Errors: kCancelled.
  Status Examine(AgentNode* node);
  void CopyDuplicate(const AgentNode& earlier, AgentNode* node) const;
  // Where `evaluation` is the best, this session's result.
  void Keep(Evaluation* evaluation);
  // Whether it was a round, and whether it gained something.
  void Count(const AgentNode& node);
  // The calls since the last node, and the time, become this one's.
  void Charge(AgentNode* node) const;
  // Stores a node whose candidate is about to be run, for the session that finishes this one if it
  // is killed.
  void KeepUnevaluated(AgentNode node) const;
  // The node is complete: stored, in place of what was kept under its id, and told.
  void Finish(AgentNode node);
  void End(const std::string& reason) {
    if (reason_.empty()) reason_ = reason;
  }

  const AgentSettings& settings_;
  const NodeSink& sink_;
  const ForgeProgress& progress_;
  const Cancel never_;
  const Cancel& cancel_;
  const double began_;
  double marked_;            // when the last node was finished
  double spent_before_ = 0;  // seconds, of the session that is resumed
  AgentCalls calls_;
  LlmCoder coder_;
  Evaluator evaluator_;
  const Json floor_;
  const AgentPrompts prompts_;
  const std::unique_ptr<Strategy> strategy_;

  std::vector<AgentNode> nodes_;        // earlier ones included
  std::map<std::string, int> digests_;  // of candidates that were run, to their node
  size_t entered_ = 0;                  // ledger entries that belong to a node
  int asked_ = 0;                       // calls of the Coder
  int rounds_ = 0;                      // replies of the Coder
  int without_gain_ = 0;
  double gained_ns_ = kInfinity;  // the time that the next gain is measured against
  int faults_ = 0;                // in a row
  SearchOutcome outcome_;
  double best_earlier_ns_ = kInfinity;
  std::string reason_;
};

ReplyReader Session::ReaderOf(const OpSignature& signature, const DeviceArch& arch) const {
  if (!settings_.triton.empty()) {
    return [this, &signature, compiler = TritonCompiler{settings_.triton, arch.target}](
               std::string_view reply, std::string author) {
      return ParseTritonReply(reply, signature, compiler, std::move(author), cancel_);
    };
  }
  const Language language =
      signature.device == DeviceType::kCuda ? Language::kCuda : Language::kCpu;
  return [language](std::string_view reply, std::string author) {
    return ParseCoderReply(reply, language, std::move(author));
  };
}

Status Session::PriceEarlier(LedgerEntry* call) const {
  const bool costs = *call->usage.input_tokens + *call->usage.output_tokens > 0;
  if (call->usd.has_value() || !costs) return Status::Ok();
  const Price* price = PriceOf(settings_.prices, call->provider, call->model);
  if (price != nullptr) {
    call->usd = Dollars(*price, call->usage);
  } else if (settings_.budget.usd > 0) {
    return Status::InvalidArgument(
        "a limit in dollars needs the price of what was spent before, and the price file has none "
        "for " +
        call->provider);
  }
  return Status::Ok();
}

Status Session::LoadEarlier() {
  for (const Json& json : settings_.earlier) {
    Result<AgentNode> node = AgentNode::FromJson(json);
    if (!node.ok()) continue;
    spent_before_ += std::max(0.0, node->seconds);
    for (LedgerEntry& call : node->calls) {
      CF_RETURN_IF_ERROR(PriceEarlier(&call));
      calls_.AddEarlier(call);
    }
    if (node->candidate.has_value() && node->evaluated && !node->duplicate_of.has_value()) {
      digests_.emplace(CandidateDigest(*node->candidate), node->id);
    }
    Count(*node);
    nodes_.push_back(*std::move(node));
  }
  entered_ = calls_.ledger().entries().size();
  return Status::Ok();
}

void Session::Count(const AgentNode& node) {
  if (node.kind != StepKind::kStart && node.answered && !node.calls.empty()) {
    ++rounds_;
    ++without_gain_;
  }
  if (node.correct() && *node.ns < kGain * gained_ns_) {
    gained_ns_ = *node.ns;
    without_gain_ = 0;
  }
}

AgentNode Session::NewNode(StepKind kind, const AgentNode* parent) const {
  AgentNode node;
  for (const AgentNode& earlier : nodes_) node.id = std::max(node.id, earlier.id + 1);
  node.round = node.id;
  node.kind = kind;
  if (parent != nullptr) node.parent = parent->id;
  node.session = settings_.session;
  node.author = coder_.author();
  return node;
}

void Session::Keep(Evaluation* evaluation) {
  if (!evaluation->trial.has_value()) return;
  if (outcome_.best.has_value() && *evaluation->ns >= *outcome_.best->worker_ns) return;
  outcome_.best = std::move(evaluation->trial);
  outcome_.verification = std::move(evaluation->verification);
}

void Session::CopyDuplicate(const AgentNode& earlier, AgentNode* node) const {
  node->duplicate_of = earlier.id;
  node->verdict = earlier.verdict;
  node->ns = earlier.ns;
  node->resources = earlier.resources;
  node->profile = earlier.profile;
  node->derived = earlier.derived;
}

Status Session::Examine(AgentNode* node) {
  const std::string digest = CandidateDigest(*node->candidate);
  if (const auto known = digests_.find(digest); known != digests_.end()) {
    const auto earlier = std::find_if(nodes_.begin(), nodes_.end(), [&](const AgentNode& other) {
      return other.id == known->second;
    });
    if (earlier != nodes_.end()) {
      CopyDuplicate(*earlier, node);
      return Status::Ok();
    }
  }
  const AgentNode* best = BestNode(nodes_);
  Result<Evaluation> found =
      evaluator_.Evaluate(*node->candidate, best != nullptr ? best->ns : std::nullopt);
  if (found.status().code() == StatusCode::kCancelled) {
    node->evaluated = false;
    node->verdict = {VerdictKind::kTooSlow, "not verified: cancelled", Json::object()};
    return found.status();
  }
  digests_.emplace(digest, node->id);
  if (!found.ok()) {  // a built-in kernel, or two of a Coder's in a row: hardly their own fault
    const std::string why = found.status().ToString();
    node->verdict = {VerdictKind::kCrashed, "could not be judged: " + why, Json::object()};
    faults_ += node->kind == StepKind::kStart ? kMaxFaults : 1;
    if (faults_ >= kMaxFaults) End("candidates cannot be run: " + why);
    return Status::Ok();
  }
  faults_ = 0;
  node->verdict = found->verdict;
  node->ns = found->ns;
  node->resources = std::move(found->resources);
  node->profile = std::move(found->profile);
  node->derived = std::move(found->derived);
  Keep(&*found);
  return Status::Ok();
}

void Session::Charge(AgentNode* node) const {
  const auto& entries = calls_.ledger().entries();
  node->calls.assign(entries.begin() + static_cast<std::ptrdiff_t>(entered_), entries.end());
  node->seconds = Now() - marked_;
}

void Session::KeepUnevaluated(AgentNode node) const {
  if (!sink_) return;
  node.evaluated = false;
  node.verdict = {VerdictKind::kTooSlow, "not verified: the session was cut off", Json::object()};
  Charge(&node);
  sink_(node.ToJson());
}

void Session::Finish(AgentNode node) {
  Charge(&node);
  entered_ = calls_.ledger().entries().size();
  marked_ += node.seconds;

  const AgentNode* best = BestNode(nodes_);
  const bool is_best = node.correct() && (best == nullptr || *node.ns < *best->ns);
  Count(node);
  Json json = node.ToJson();
  if (sink_) sink_(json);
  Json event = {{"event", "candidate"},
                {"round", node.round},
                {"kind", StepKindName(node.kind)},
                {"verdict", VerdictName(node.verdict.kind)},
                {"message", json["verdict"]["message"]},
                {"best", is_best}};
  if (node.ns.has_value()) event["ns"] = FloatToJson(*node.ns);
  if (node.duplicate_of.has_value()) event["duplicate_of"] = *node.duplicate_of;
  Tell(event);
  outcome_.lineage.push_back(std::move(json));
  nodes_.push_back(std::move(node));
}

Status Session::TryEarlier() {
  std::vector<AgentNode*> right;
  for (AgentNode& node : nodes_) {
    if (node.correct() && !node.duplicate_of.has_value()) right.push_back(&node);
  }
  std::stable_sort(right.begin(), right.end(),
                   [](const AgentNode* a, const AgentNode* b) { return *a->ns < *b->ns; });
  for (AgentNode* node : right) {
    CF_ASSIGN_OR_RETURN(Evaluation found, evaluator_.Evaluate(*node->candidate, std::nullopt));
    node->verdict = found.verdict;
    if (!found.trial.has_value()) continue;
    node->ns = found.ns;
    if (!found.profile.is_null()) node->profile = found.profile;
    if (!found.derived.is_null()) node->derived = found.derived;
    best_earlier_ns_ = *found.ns;
    gained_ns_ = std::max(std::isfinite(gained_ns_) ? gained_ns_ : 0, *found.ns);
    Keep(&found);
    for (AgentNode& other : nodes_) {  // they were slower then, and are not timed again
      const bool same = &other == node;
      if (!same && other.correct()) other.ns = std::max(*other.ns, *found.ns * kBarelySlower);
    }
    return Status::Ok();
  }
  return Status::Ok();
}

Status Session::TryStart() {
  if (!settings_.start.has_value()) return Status::Ok();
  if (digests_.contains(CandidateDigest(*settings_.start))) return Status::Ok();
  AgentNode node = NewNode(StepKind::kStart, nullptr);
  node.author = settings_.start->author;
  node.candidate = settings_.start;
  Tell({{"event", "round"}, {"round", node.round}, {"kind", "start"}, {"parent", nullptr}});
  Status status = Examine(&node);
  if (!status.ok()) return status;  // nothing was spent on it: not worth a node
  if (node.correct()) best_earlier_ns_ = std::min(best_earlier_ns_, *node.ns);
  Finish(std::move(node));
  return Status::Ok();
}

Status Session::FinishInterrupted() {
  if (nodes_.empty() || nodes_.back().evaluated || !nodes_.back().candidate.has_value()) {
    return Status::Ok();
  }
  const AgentNode& interrupted = nodes_.back();
  AgentNode node = NewNode(interrupted.kind, nullptr);
  node.author = interrupted.author;
  node.parent = interrupted.parent;
  node.candidate = interrupted.candidate;
  node.advice = interrupted.advice;
  node.prompts = interrupted.prompts;
  Tell({{"event", "round"},
        {"round", node.round},
        {"kind", StepKindName(node.kind)},
        {"parent", node.parent.has_value() ? Json(*node.parent) : Json()}});
  Status status = Examine(&node);
  if (!status.ok()) return status;  // the interrupted node stands
  Finish(std::move(node));
  return Status::Ok();
}

std::optional<Advice> Session::AskJudge(const Step& step, AgentNode* node) {
  if (settings_.judge == nullptr || step.parent == nullptr || !step.parent->candidate.has_value()) {
    return std::nullopt;
  }
  const Result<Prompt> prompt = prompts_.ForJudge(step, nodes_, node->hints);
  if (!prompt.ok()) {
    node->silence = prompt.status().ToString();
    return std::nullopt;
  }
  LlmJudge judge(settings_.judge, &calls_);
  const LlmJudge::Opinion opinion = judge.Advise(*prompt, node->round);
  for (const Prompt& sent : opinion.prompts) node->prompts.push_back(PromptNote(sent));
  node->advice = opinion.advice;
  node->silence = opinion.silence;
  Json event = {{"event", "advice"}, {"round", node->round}};
  if (opinion.advice.has_value()) {
    event["issue"] = opinion.advice->issue;
    event["plan"] = opinion.advice->plan;
  } else {
    event["silence"] = opinion.silence;
  }
  Tell(event);
  return opinion.advice;
}

// A round that ends before the Coder's reply leaves a node only where it cost something.
Status Session::Round() {
  const Step step = strategy_->Choose(nodes_);
  AgentNode node = NewNode(step.kind, step.parent);
  Tell({{"event", "round"},
        {"round", node.round},
        {"kind", StepKindName(node.kind)},
        {"parent", node.parent.has_value() ? Json(*node.parent) : Json()}});
  if (settings_.hints) node.hints = settings_.hints();
  const std::optional<Advice> advice = AskJudge(step, &node);
  const auto give_up = [this, &node](const std::string& why) {
    End(why);
    if (calls_.ledger().entries().size() == entered_) return Status::Ok();
    node.answered = false;
    node.verdict = {VerdictKind::kRefused, "no reply: " + why, Json::object()};
    Finish(std::move(node));
    return Status::Ok();
  };
  if (cancel_.IsSet()) return give_up("cancelled");
  const Result<Prompt> rendered = prompts_.ForCoder(step, nodes_, advice, node.hints);
  if (!rendered.ok()) return give_up(rendered.status().ToString());
  const Prompt& prompt = *rendered;
  const Allowance allowance = coder_.Allow(prompt);
  if (!allowance.refusal.empty()) return give_up(allowance.refusal);
  node.prompts.push_back(PromptNote(prompt));
  ++asked_;
  Result<Proposal> proposal = coder_.Propose(prompt, allowance.limits, node.round);
  if (!proposal.ok()) {
    const std::string over = WhyStop();  // the call may have been cut at the end of the budget
    return give_up(over.empty() ? "the Coder gave no reply: " + proposal.status().ToString()
                                : over);
  }
  if (!proposal->candidate.has_value()) {
    node.verdict = {VerdictKind::kRefused, proposal->refusal, Json::object()};
    node.reply = proposal->reply.substr(0, kMaxKeptReply);
    Finish(std::move(node));
    return Status::Ok();
  }
  node.candidate = std::move(proposal->candidate);
  node.candidate->params.update({{"session", settings_.session},
                                 {"node", node.id},
                                 {"model", proposal->model},
                                 {"prompt_sha256", prompt.sha256}});
  KeepUnevaluated(node);
  Status status = Examine(&node);
  Finish(std::move(node));
  return status;
}

std::string Session::WhyStop() const {
  const AgentBudget& budget = settings_.budget;
  if (cancel_.IsSet()) return "cancelled";
  if (!reason_.empty()) return reason_;
  if (rounds_ >= budget.rounds) {
    return "made as many rounds as the budget allows (" + std::to_string(budget.rounds) + ")";
  }
  if (spent_before_ + Now() - began_ >= budget.seconds) return "the time of the budget is spent";
  if (without_gain_ >= budget.patience) {
    return "no gain in " + std::to_string(without_gain_) + " rounds";
  }
  if (const double reached = OfFloor(); budget.roofline > 0 && reached >= budget.roofline) {
    return "the best kernel runs at " + Rounded(reached * 100) + "% of what the device allows";
  }
  return "";
}

double Session::OfFloor() const {
  const AgentNode* best = BestNode(nodes_);
  const auto floor_us = JsonDouble(floor_, "floor_us");
  return best != nullptr && floor_us.ok() && *best->ns > 0 ? *floor_us * 1e3 / *best->ns : 0;
}

Result<AgentOutcome> Session::Run() {
  CF_RETURN_IF_ERROR(LoadEarlier());
  outcome_.verification = Json::object();
  Status status;
  for (const auto step : {&Session::TryEarlier, &Session::FinishInterrupted, &Session::TryStart}) {
    if (status.ok()) status = (this->*step)();
  }
  // What is not a candidate's fault, before the first round: nothing could be tried at all.
  if (!status.ok() && !cancel_.IsSet()) End("candidates cannot be run: " + status.ToString());
  std::string reason = WhyStop();
  for (; reason.empty(); reason = WhyStop()) {
    status = Round();
    if (!status.ok() && status.code() != StatusCode::kCancelled) End(status.ToString());
  }
  outcome_.reason = reason;
  if (!outcome_.best.has_value()) {
    const auto last = std::find_if(nodes_.rbegin(), nodes_.rend(),
                                   [](const AgentNode& node) { return node.answered; });
    if (last != nodes_.rend() && !last->correct()) {
      outcome_.reason =
          "no candidate was right: " + reason + "; the last: " + last->verdict.message;
    }
  }
  const double roofline = settings_.budget.roofline;
  outcome_.out_of_time = roofline <= 0 || OfFloor() < roofline;
  const bool answered = rounds_ > 0 || (asked_ == 0 && outcome_.best.has_value());
  Tell({{"event", "agents_end"},
        {"reason", reason},
        {"ledger", calls_.ledger().ToJson()},
        {"answered", answered}});
  return AgentOutcome{std::move(outcome_), calls_.ledger(), best_earlier_ns_, answered};
}

}  // namespace

Result<AgentOutcome> RunAgents(const OpSignature& signature, const DeviceArch& arch,
                               CandidateRunner& runner, const RegionChecker& checker,
                               const AgentSettings& settings, const NodeSink& sink,
                               const ForgeProgress& progress) {
  CF_RETURN_IF_ERROR(CheckAgents(settings));
  if (settings.session.empty()) return Status::InvalidArgument("a session needs a name");
  if (!settings.triton.empty() && signature.device != DeviceType::kCuda) {
    return Status::InvalidArgument("kernels in Triton are for CUDA devices");
  }
  return Session(signature, arch, runner, checker, settings, sink, progress).Run();
}

Status CheckAgents(const AgentSettings& settings) {
  if (settings.coder == nullptr) return Status::InvalidArgument("a session needs a Coder");
  for (const Provider* provider : {settings.coder, settings.judge}) {
    if (provider == nullptr || settings.budget.usd <= 0) continue;
    const std::string name = provider->name();
    if (PriceOf(settings.prices, name, ModelOf(name)) != nullptr) continue;
    return Status::InvalidArgument(
        "a limit in dollars needs a price, and the price file has none for " + name);
  }
  return Status::Ok();
}

}  // namespace cudaforge
