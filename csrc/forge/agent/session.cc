#include "forge/agent/session.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "forge/agent/agent_calls.h"
#include "forge/agent/agent_prompts.h"
#include "forge/agent/coder.h"
#include "forge/agent/evaluate.h"
#include "forge/agent/judge.h"
#include "forge/agent/strategy.h"
#include "forge/agent/triton.h"
#include "measure/roofline.h"

namespace cudaforge {
namespace {

// A kernel cannot do more than the device allows: above this share the floor is not this region's
// (its inputs stay in a cache, or the rates were measured on a busy machine), and ends nothing.
constexpr double kPossible = 1.05;

constexpr size_t kMaxKeptReply = size_t{64} << 10;
// Candidates in a row that could not be judged through no fault of their own.
constexpr int kMaxFaults = 2;
// Sessions in which a candidate was being judged when they ended, before it is given up.
constexpr int kMaxInterruptions = 1;

Json DeviceFor(const DeviceArch& arch, const Json& facts) {
  Json device = arch.Facts();
  device["arch"] = arch.target;
  device.update(facts);
  for (auto field = device.begin(); field != device.end();) {  // what is empty tells nothing
    field = field->is_null() || *field == "" ? device.erase(field) : std::next(field);
  }
  return device;
}

std::string RivalText(const std::string& rival, std::optional<double> ns) {
  if (!ns.has_value()) return rival;
  return (rival.empty() ? "the best so far" : rival) + ", " + Significant(*ns / 1e3, 3) + " us";
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
          const RegionChecker& checker, const AgentSettings& settings, const Cancel& cancel,
          std::unique_ptr<Strategy> strategy, const NodeSink& sink, const ForgeProgress& progress)
      : settings_(settings),
        progress_(progress),
        cancel_(cancel),
        calls_({settings.budget, settings.prices, settings.limits,
                [this] { return journal_.seconds(); }, progress},
               cancel_),
        coder_(settings.coder, &calls_, ReaderOf(signature, arch)),
        evaluator_(signature, runner, checker, settings.metrics, cancel_),
        floor_(FloorOf(signature, evaluator_.facts())),
        prompts_({&signature, arch.target, DeviceFor(arch, evaluator_.facts()), floor_,
                  RivalText(settings.rival, settings.rival_ns), settings.metrics,
                  settings.max_documents, settings.triton.empty() ? "" : "triton"}),
        strategy_(std::move(strategy)),
        journal_({settings.session, coder_.author(), settings.rival_ns,
                  settings.clock ? settings.clock : &SteadySeconds, &sink, progress},
                 &calls_) {}

  Result<AgentOutcome> Run();

 private:
  ReplyReader ReaderOf(const OpSignature& signature, const DeviceArch& arch) const;
  void Tell(const Json& event) const {
    if (progress_) progress_(event);
  }
  // `near`: the key of the near region that a start is from; may be empty.
  void TellRound(const AgentNode& node, const std::string& near = "") const;
  void TellRival(std::optional<double> ns) const;

  // Makes the best of the earlier nodes, and the start, the best of this session. Both are run, as
  // a kernel that was right on another day is to be right today; one that is not stays refused.
  Status TryEarlier();
  Status TryStart();
  // Where the start is what must be beaten: takes its time of today from the node that ran it.
  void TakeRival(const AgentNode& start);
  Status RecallRival();
  // The candidate of the last earlier node, whose session ended before its verdict.
  Status FinishInterrupted();
  Status Round();

  // Why the session ends now; empty: it goes on.
  std::string WhyStop() const;
  // The least time that the device allows over the best kernel's; 0: unknown.
  double OfFloor() const;
  std::optional<Advice> AskJudge(const Step& step, AgentNode* node);
  // Fills in the node's verdict and measurements, by running its candidate or from the node that
  // ran it before. Errors: kCancelled.
  Status Examine(AgentNode* node);
  // Where `evaluation` is the best, this session's result.
  void Keep(Evaluation* evaluation);
  void End(const std::string& reason) {
    if (reason_.empty()) reason_ = reason;
  }

  const AgentSettings& settings_;
  const ForgeProgress& progress_;
  const Cancel& cancel_;
  AgentCalls calls_;
  LlmCoder coder_;
  Evaluator evaluator_;
  const Json floor_;
  AgentPrompts prompts_;
  const std::unique_ptr<Strategy> strategy_;
  Journal journal_;

  int asked_ = 0;   // calls of the Coder
  int faults_ = 0;  // in a row
  SearchOutcome outcome_;
  std::string reason_;
  std::string limit_;  // that left no room for another call of the Coder
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

void Session::TellRound(const AgentNode& node, const std::string& near) const {
  Json event = {{"event", "round"},
                {"round", node.id},
                {"kind", StepKindName(node.kind)},
                {"parent", node.parent.has_value() ? Json(*node.parent) : Json()}};
  if (!near.empty()) event["near"] = near;
  Tell(event);
}

void Session::TellRival(std::optional<double> ns) const {
  if (ns.has_value()) Tell({{"event", "rival"}, {"rival", settings_.rival}, {"us", *ns / 1e3}});
}

void Session::Keep(Evaluation* evaluation) {
  if (!evaluation->trial.has_value()) return;
  if (outcome_.best.has_value() && *evaluation->ns >= *outcome_.best->worker_ns) return;
  outcome_.best = std::move(evaluation->trial);
  outcome_.verification = std::move(evaluation->verification);
}

Status Session::Examine(AgentNode* node) {
  if (const AgentNode* earlier = journal_.FindTried(*node->candidate)) {
    node->duplicate_of = earlier->id;
    static_cast<Findings&>(*node) = *earlier;
    return Status::Ok();
  }
  const AgentNode* best = journal_.best();
  Result<Evaluation> found =
      evaluator_.Evaluate(*node->candidate, best != nullptr ? best->ns : std::nullopt);
  if (found.status().code() == StatusCode::kCancelled) {
    node->evaluated = false;
    node->verdict = {VerdictKind::kNotJudged, "not verified: cancelled", Json::object()};
    return found.status();
  }
  journal_.NoteTried(*node->candidate, node->id);
  if (!found.ok()) {  // a built-in kernel, or two of a Coder's in a row: hardly their own fault
    const std::string why = found.status().ToString();
    node->verdict = {VerdictKind::kCrashed, "could not be judged: " + why, Json::object()};
    faults_ += node->kind == StepKind::kStart ? kMaxFaults : 1;
    if (faults_ >= kMaxFaults) End("candidates cannot be run: " + why);
    return Status::Ok();
  }
  faults_ = 0;
  static_cast<Findings&>(*node) = *found;
  node->device_seconds = found->device_seconds;
  Keep(&*found);
  return Status::Ok();
}

Status Session::TryEarlier() {
  const std::vector<AgentNode>& nodes = journal_.nodes();
  std::vector<size_t> right;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].correct() && !nodes[i].duplicate_of.has_value()) right.push_back(i);
  }
  std::stable_sort(right.begin(), right.end(),
                   [&](size_t a, size_t b) { return *nodes[a].ns < *nodes[b].ns; });
  for (const size_t i : right) {
    CF_ASSIGN_OR_RETURN(Evaluation found, evaluator_.Evaluate(*nodes[i].candidate, std::nullopt));
    journal_.Refresh(i, found);
    if (!found.trial.has_value()) continue;
    Keep(&found);
    return Status::Ok();
  }
  return Status::Ok();
}

void Session::TakeRival(const AgentNode& start) {
  if (!settings_.start_is_rival) return;
  if (start.correct()) {
    journal_.SetRival(*start.ns);
    prompts_.SetRival(RivalText(settings_.rival, start.ns));
  }
  TellRival(start.correct() ? start.ns : settings_.rival_ns);
}

Status Session::RecallRival() {
  const AgentNode* start =
      settings_.start.has_value() ? journal_.FindTried(*settings_.start) : nullptr;
  if (start != nullptr) TakeRival(*start);
  return Status::Ok();
}

Status Session::TryStart() {
  if (!settings_.start.has_value()) return Status::Ok();
  if (journal_.FindTried(*settings_.start) != nullptr) return Status::Ok();
  AgentNode node = journal_.NewNode(StepKind::kStart, nullptr);
  node.author = settings_.start->author;
  node.candidate = settings_.start;
  TellRound(node, settings_.start_near);
  Status status = Examine(&node);
  if (!status.ok()) return status;  // nothing was spent on it: not worth a node
  TakeRival(node);
  node.rival_ns = journal_.rival_ns();
  journal_.Finish(std::move(node));
  return Status::Ok();
}

Status Session::FinishInterrupted() {
  const std::vector<AgentNode>& nodes = journal_.nodes();
  if (nodes.empty() || nodes.back().evaluated || !nodes.back().candidate.has_value()) {
    return Status::Ok();
  }
  const AgentNode& interrupted = nodes.back();
  AgentNode node = journal_.NewNode(interrupted.kind, nullptr);
  node.author = interrupted.author;
  node.parent = interrupted.parent;
  node.candidate = interrupted.candidate;
  node.advice = interrupted.advice;
  node.prompts = interrupted.prompts;
  TellRound(node);
  if (journal_.Interrupted(*node.candidate) > kMaxInterruptions) {
    node.verdict = {VerdictKind::kCrashed,
                    "every try to judge it was interrupted: it may end this process", Json()};
    journal_.Finish(std::move(node));
    return Status::Ok();
  }
  journal_.KeepUnevaluated(node);
  Status status = Examine(&node);
  if (!status.ok()) return status;  // the interrupted node stands
  journal_.Finish(std::move(node));
  return Status::Ok();
}

std::optional<Advice> Session::AskJudge(const Step& step, AgentNode* node) {
  if (settings_.judge == nullptr || step.parent == nullptr || !step.parent->candidate.has_value()) {
    return std::nullopt;
  }
  const Result<Prompt> prompt = prompts_.ForJudge(step, journal_.nodes(), node->hints);
  if (!prompt.ok()) {
    node->silence = prompt.status().ToString();
    return std::nullopt;
  }
  LlmJudge judge(settings_.judge, &calls_);
  const LlmJudge::Opinion opinion = judge.Advise(*prompt, node->id);
  for (const Prompt& sent : opinion.prompts) node->prompts.push_back(PromptNote(sent));
  node->advice = opinion.advice;
  node->silence = opinion.silence;
  Json event = {{"event", "advice"}, {"round", node->id}};
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
  const Step step = strategy_->Choose(journal_.nodes());
  AgentNode node = journal_.NewNode(step.kind, step.parent);
  TellRound(node);
  if (settings_.hints) node.hints = settings_.hints();
  const std::optional<Advice> advice = AskJudge(step, &node);
  const auto give_up = [this, &node](const std::string& why) {
    End(why);
    if (!journal_.has_open_calls()) return Status::Ok();
    node.answered = false;
    node.verdict = {VerdictKind::kRefused, "no reply: " + why, Json::object()};
    journal_.Finish(std::move(node));
    return Status::Ok();
  };
  if (journal_.has_open_calls()) journal_.KeepUnanswered(node);
  if (cancel_.IsSet()) return give_up("cancelled");
  const Result<Prompt> rendered = prompts_.ForCoder(step, journal_.nodes(), advice, node.hints);
  if (!rendered.ok()) return give_up(rendered.status().ToString());
  const Prompt& prompt = *rendered;
  const Allowance allowance = coder_.Allow(prompt);
  if (!allowance.refusal.empty()) {
    limit_ = allowance.limit;
    return give_up(allowance.refusal);
  }
  node.prompts.push_back(PromptNote(prompt));
  ++asked_;
  Result<Proposal> proposal = coder_.Propose(prompt, allowance.limits, node.id);
  if (!proposal.ok()) {
    const std::string over = WhyStop();  // the call may have been cut at the end of the budget
    return give_up(over.empty() ? "the Coder gave no reply: " + proposal.status().ToString()
                                : over);
  }
  if (!proposal->candidate.has_value()) {
    node.verdict = {VerdictKind::kRefused, proposal->refusal, Json::object()};
    node.reply = proposal->reply.substr(0, kMaxKeptReply);
    journal_.Finish(std::move(node));
    return Status::Ok();
  }
  node.candidate = std::move(proposal->candidate);
  node.candidate->params.update({{"session", settings_.session},
                                 {"node", node.id},
                                 {"model", proposal->model},
                                 {"prompt_sha256", prompt.sha256}});
  journal_.KeepUnevaluated(node);
  Status status = Examine(&node);
  journal_.Finish(std::move(node));
  return status;
}

std::string Session::WhyStop() const {
  const AgentBudget& budget = settings_.budget;
  if (cancel_.IsSet()) return "cancelled";
  if (!reason_.empty()) return reason_;
  if (journal_.rounds() >= budget.rounds) {
    return "made as many rounds as the budget allows (" + std::to_string(budget.rounds) + ")";
  }
  if (journal_.seconds() >= budget.seconds) return "the time of the budget is spent";
  if (journal_.without_gain() >= budget.patience) {
    return "no gain in " + std::to_string(journal_.without_gain()) + " rounds";
  }
  const double reached = OfFloor();
  if (budget.roofline > 0 && reached >= budget.roofline && reached <= kPossible) {
    return "the best kernel runs at " + Significant(reached * 100, 3) +
           "% of what the device allows";
  }
  return "";
}

double Session::OfFloor() const {
  const AgentNode* best = journal_.best();
  const auto floor_us = JsonDouble(floor_, "floor_us");
  return best != nullptr && floor_us.ok() && *best->ns > 0 ? *floor_us * 1e3 / *best->ns : 0;
}

Result<AgentOutcome> Session::Run() {
  CF_RETURN_IF_ERROR(journal_.Load(settings_.earlier, settings_.prices));
  outcome_.verification = Json::object();
  Status status;
  if (!settings_.start_is_rival) TellRival(settings_.rival_ns);
  for (const auto step : {&Session::TryEarlier, &Session::RecallRival, &Session::FinishInterrupted,
                          &Session::TryStart}) {
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
  const std::vector<AgentNode>& nodes = journal_.nodes();
  const bool has_candidate = std::any_of(
      nodes.begin(), nodes.end(), [](const AgentNode& node) { return node.candidate.has_value(); });
  if (!outcome_.best.has_value()) {
    const auto last = std::find_if(nodes.rbegin(), nodes.rend(),
                                   [](const AgentNode& node) { return node.answered; });
    if (last != nodes.rend() && !last->correct()) {
      outcome_.reason =
          std::string(has_candidate ? "no candidate was right: " : "no reply has a candidate: ") +
          reason + "; the last: " + last->verdict.message;
    }
  }
  const bool answered = journal_.rounds() > 0 || (asked_ == 0 && outcome_.best.has_value());
  Ledger costs = journal_.Costs();
  Tell({{"event", "agents_end"},
        {"reason", reason},
        {"limit", limit_},
        {"ledger", costs.ToJson()},
        {"answered", answered}});
  outcome_.lineage = journal_.TakeLineage();
  return AgentOutcome{std::move(outcome_), std::move(costs), answered, has_candidate};
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
  CF_ASSIGN_OR_RETURN(auto strategy, MakeStrategy(settings.strategy));
  Cancel own;
  Cancel& cancel = settings.cancel != nullptr ? *settings.cancel : own;
  std::exception_ptr thrown;
  const ForgeProgress tell = [&](const Json& event) {
    if (!progress || thrown != nullptr) return;
    try {
      progress(event);
    } catch (...) {
      thrown = std::current_exception();
      cancel.Set();
    }
  };
  Result<AgentOutcome> outcome =
      Session(signature, arch, runner, checker, settings, cancel, std::move(strategy), sink, tell)
          .Run();
  if (thrown != nullptr) std::rethrow_exception(thrown);
  return outcome;
}

Status CheckAgents(const AgentSettings& settings) {
  CF_RETURN_IF_ERROR(MakeStrategy(settings.strategy).status());
  if (settings.coder == nullptr) return Status::InvalidArgument("a session needs a Coder");
  for (const Provider* provider : {settings.coder, settings.judge}) {
    if (provider == nullptr || settings.budget.usd <= 0) continue;
    const std::string name = provider->name();
    if (settings.prices.Find(name, "") != nullptr) continue;
    return Status::InvalidArgument("a limit in dollars needs a price, and " +
                                   settings.prices.name() + " has none for " + name);
  }
  return Status::Ok();
}

}  // namespace cudaforge
