#include "forge/agent/agent_calls.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/clock.h"

namespace cudaforge {
namespace {

// Fewer tokens than these cannot hold a kernel or advice.
constexpr int64_t kLeastCoderTokens = 1024;
constexpr int64_t kLeastJudgeTokens = 256;

// Returns true if `count` is plausible for something estimated at `estimate`: 0 only if that is 0.
bool IsCount(const std::optional<int64_t>& count, int64_t estimate) {
  return count.has_value() && *count >= (estimate > 0 ? 1 : 0) && *count <= kMostTokens;
}

// Estimates what the service did not count.
void EstimateMissing(int64_t input, int64_t output, LedgerEntry* entry) {
  Usage& usage = entry->usage;
  const auto fill = [entry](int64_t estimate, std::optional<int64_t>* count) {
    if (IsCount(*count, estimate)) return;
    *count = std::min(estimate, kMostTokens);
    entry->estimated = true;
  };
  fill(input, &usage.input_tokens);
  fill(output, &usage.output_tokens);
  if (!IsCount(usage.cached_input_tokens, 0)) usage.cached_input_tokens.reset();
}

// Returns true if a service that failed like this may have processed the request.
bool MayHaveWorked(const Status& status, bool text_came) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kNotFound:
      return false;
    case StatusCode::kUnavailable:
      return text_came;
    default:
      return true;
  }
}

}  // namespace

Allowance AgentCalls::Allow(const Provider& provider, AgentRole role, const Prompt& prompt) const {
  return AllowCall(options_.budget, ledger_.Sum(), options_.seconds_spent(),
                   EstimateInputTokens(prompt.messages), options_.prices.Find(provider.name(), ""),
                   role == AgentRole::kCoder ? kLeastCoderTokens : kLeastJudgeTokens,
                   options_.limits);
}

Result<Reply> AgentCalls::Ask(Provider& provider, AgentRole role, const Prompt& prompt,
                              const ReplyLimits& limits, int round) {
  if (options_.progress) {
    options_.progress({{"event", "ask"},
                       {"round", round},
                       {"role", AgentRoleName(role)},
                       {"provider", provider.name()}});
  }
  if (cancel_.IsSet()) return Status::Cancelled("cancelled");
  const double start = SteadySeconds();
  bool text_came = false;
  const Result<Reply> reply =
      provider.Complete({role, prompt.messages, limits}, cancel_,
                        [&text_came](std::string_view text) { text_came |= !text.empty(); });
  LedgerEntry entry;
  entry.round = round;
  entry.role = role;
  entry.provider = provider.name();
  entry.replayed = provider.is_replay();
  entry.model = reply.ok() && !reply->model.empty() ? reply->model : ModelOf(entry.provider);
  entry.prompt = prompt.name;
  entry.prompt_sha256 = prompt.sha256;
  const int64_t input = EstimateInputTokens(prompt.messages);
  if (reply.ok()) {
    entry.usage = reply->usage;
    EstimateMissing(input, EstimateTokens(reply->content), &entry);
    entry.seconds = entry.replayed ? SteadySeconds() - start : reply->seconds;
    entry.note = reply->note;
  } else {
    entry.error = reply.status().ToString();
    const bool worked = MayHaveWorked(reply.status(), text_came);
    const bool wrote = worked && provider.is_metered();
    EstimateMissing(worked ? input : 0, wrote ? limits.max_output_tokens : 0, &entry);
    entry.estimated = worked;
    entry.seconds = SteadySeconds() - start;
  }
  const Price* price = options_.prices.Find(entry.provider, entry.model);
  if (price != nullptr) entry.usd = Dollars(*price, entry.usage);
  ledger_.Add(entry);
  Tell(entry);
  return reply;
}

void AgentCalls::Tell(const LedgerEntry& entry) const {
  if (!options_.progress) return;
  Json event = entry.ToJson();
  event["event"] = "call";
  event.erase("prompt_sha256");
  options_.progress(event);
}

}  // namespace cudaforge
