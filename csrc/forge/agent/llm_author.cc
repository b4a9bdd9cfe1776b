#include "forge/agent/llm_author.h"

#include "forge/agent/judge.h"

namespace cudaforge {
namespace {

constexpr size_t kMaxKeptReply = size_t{64} << 10;

}  // namespace

std::optional<Advice> LlmAuthor::AskJudge(const Step& step, const Population& population,
                                          Trial* trial) {
  if (options_.judge == nullptr || step.parent == nullptr || !step.parent->candidate.has_value()) {
    return std::nullopt;
  }
  const Result<Prompt> prompt = prompts_.ForJudge(step, population.trials(), trial->hints);
  if (!prompt.ok()) {
    trial->silence = prompt.status().ToString();
    return std::nullopt;
  }
  LlmJudge judge(options_.judge, &calls_);
  const LlmJudge::Opinion opinion = judge.Advise(*prompt, trial->id);
  for (const Prompt& sent : opinion.prompts) trial->prompts.push_back(PromptNote(sent));
  trial->advice = opinion.advice;
  trial->silence = opinion.silence;
  Json event = {{"event", "advice"}, {"round", trial->id}};
  if (opinion.advice.has_value()) {
    event["issue"] = opinion.advice->issue;
    event["plan"] = opinion.advice->plan;
  } else {
    event["silence"] = opinion.silence;
  }
  if (options_.progress) options_.progress(event);
  return opinion.advice;
}

Status LlmAuthor::Write(const Brief& brief, const Population& population, Trial* trial) {
  const Step step{brief.kind,
                  brief.parents.empty() ? nullptr : population.Find(brief.parents.front())};
  if (options_.hints) trial->hints = options_.hints();
  const std::optional<Advice> advice = AskJudge(step, population, trial);
  if (journal_.has_open_calls()) journal_.KeepUnanswered(*trial);
  if (calls_.cancel().IsSet()) return Status::Cancelled("cancelled");
  const Result<Prompt> prompt = prompts_.ForCoder(step, population.trials(), advice, trial->hints);
  if (!prompt.ok()) return Status::InvalidArgument(prompt.status().ToString());
  const Allowance allowance = coder_.Allow(*prompt);
  if (!allowance.refusal.empty()) {
    limit_ = allowance.limit;
    return Status::InvalidArgument(allowance.refusal);
  }
  trial->prompts.push_back(PromptNote(*prompt));
  ++asked_;
  Result<Proposal> proposal = coder_.Propose(*prompt, allowance.limits, trial->id);
  if (!proposal.ok()) {
    return Status(StatusCode::kUnavailable,
                  "the Coder gave no reply: " + proposal.status().ToString());
  }
  if (!proposal->candidate.has_value()) {
    trial->verdict = {VerdictKind::kRefused, proposal->refusal, Json::object()};
    trial->reply = proposal->reply.substr(0, kMaxKeptReply);
    return Status::Ok();
  }
  trial->candidate = std::move(proposal->candidate);
  trial->candidate->params.update({{"session", options_.session},
                                   {"node", trial->id},
                                   {"model", proposal->model},
                                   {"prompt_sha256", prompt->sha256}});
  return Status::Ok();
}

}  // namespace cudaforge
