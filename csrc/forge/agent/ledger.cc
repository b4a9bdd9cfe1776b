#include "forge/agent/ledger.h"

#include <algorithm>
#include <limits>

namespace cudaforge {
namespace {

constexpr double kMaxAmount = 1e9;
constexpr int64_t kBytesPerToken = 3;
constexpr int64_t kTokensPerMessage = 16;  // overhead that services add

void AddTo(LedgerSum* sum, const LedgerEntry& entry) {
  const int64_t input = entry.usage.input_tokens.value_or(0);
  const int64_t output = entry.usage.output_tokens.value_or(0);
  ++sum->calls;
  sum->failed += entry.error.empty() ? 0 : 1;
  sum->estimated += entry.estimated ? 1 : 0;
  sum->replayed += entry.replayed ? 1 : 0;
  const bool costs = !entry.replayed && (input > 0 || output > 0);
  sum->unpriced += costs && !entry.usd.has_value() ? 1 : 0;
  sum->input_tokens = AddTokens(sum->input_tokens, input);
  sum->cached_input_tokens =
      AddTokens(sum->cached_input_tokens, entry.usage.cached_input_tokens.value_or(0));
  sum->output_tokens = AddTokens(sum->output_tokens, output);
  (entry.replayed ? sum->replayed_usd : sum->usd) += entry.usd.value_or(0);
  sum->seconds += entry.seconds;
}

Result<AgentRole> ParseAgentRole(const std::string& name) {
  for (const AgentRole role : {AgentRole::kCoder, AgentRole::kJudge}) {
    if (name == AgentRoleName(role)) return role;
  }
  return Status::InvalidArgument("role: neither coder nor judge");
}

}  // namespace

Json LedgerEntry::ToJson() const {
  Json json = {{"round", round},
               {"role", AgentRoleName(role)},
               {"provider", provider},
               {"model", model},
               {"prompt", prompt},
               {"prompt_sha256", prompt_sha256},
               {"usage", cudaforge::ToJson(usage)},
               {"usd", usd.has_value() ? Json(*usd) : Json()},
               {"seconds", seconds}};
  if (estimated) json["estimated"] = true;
  if (replayed) json["replayed"] = true;
  if (!note.empty()) json["note"] = note;
  if (error.empty()) {
    json["ok"] = true;
  } else {
    json["error"] = error;
  }
  return json;
}

Result<LedgerEntry> LedgerEntry::FromJson(const Json& json) {
  LedgerEntry entry;
  CF_ASSIGN_OR_RETURN(const int64_t round, JsonInt(json, "round"));
  entry.round = static_cast<int>(std::clamp<int64_t>(round, 0, INT32_MAX));
  CF_ASSIGN_OR_RETURN(const std::string role, JsonString(json, "role"));
  CF_ASSIGN_OR_RETURN(entry.role, ParseAgentRole(role));
  CF_ASSIGN_OR_RETURN(entry.provider, JsonString(json, "provider"));
  CF_ASSIGN_OR_RETURN(entry.model, JsonString(json, "model"));
  CF_ASSIGN_OR_RETURN(entry.prompt, JsonString(json, "prompt"));
  CF_ASSIGN_OR_RETURN(entry.prompt_sha256, JsonString(json, "prompt_sha256"));
  const Json& usage = MemberOrNull(json, "usage");
  entry.usage = {TokenCount(usage, "input_tokens"), TokenCount(usage, "cached_input_tokens"),
                 TokenCount(usage, "output_tokens")};
  if (!entry.usage.input_tokens.has_value() || !entry.usage.output_tokens.has_value()) {
    return Status::InvalidArgument("usage: expected counts of tokens");
  }
  if (!MemberOrNull(json, "usd").is_null()) {
    CF_ASSIGN_OR_RETURN(entry.usd, AmountFromJson(json, "usd"));
  }
  CF_ASSIGN_OR_RETURN(entry.seconds, AmountFromJson(json, "seconds"));
  entry.estimated = MemberOrNull(json, "estimated") == true;
  entry.replayed = MemberOrNull(json, "replayed") == true;
  if (const Json& error = MemberOrNull(json, "error"); error.is_string()) {
    entry.error = error.get<std::string>();
  }
  if (const Json& note = MemberOrNull(json, "note"); note.is_string()) {
    entry.note = note.get<std::string>();
  }
  return entry;
}

Result<double> AmountFromJson(const Json& json, const char* field) {
  CF_ASSIGN_OR_RETURN(const double amount, JsonDouble(json, field));
  if (amount >= 0 && amount <= kMaxAmount) return amount;
  return Status::InvalidArgument(std::string(field) + ": out of range");
}

int64_t EstimateTokens(std::string_view text) {
  return (static_cast<int64_t>(text.size()) + kBytesPerToken - 1) / kBytesPerToken;
}

int64_t EstimateInputTokens(const std::vector<Message>& messages) {
  int64_t tokens = 0;
  for (const Message& message : messages) {
    tokens += EstimateTokens(message.content) + kTokensPerMessage;
  }
  return tokens;
}

int64_t AddTokens(int64_t a, int64_t b) {
  return a > std::numeric_limits<int64_t>::max() - b ? std::numeric_limits<int64_t>::max() : a + b;
}

Json LedgerSum::ToJson() const {
  return {{"calls", calls},
          {"failed", failed},
          {"estimated", estimated},
          {"replayed", replayed},
          {"unpriced", unpriced},
          {"input_tokens", input_tokens},
          {"cached_input_tokens", cached_input_tokens},
          {"output_tokens", output_tokens},
          {"usd", usd},
          {"replayed_usd", replayed_usd},
          {"seconds", seconds}};
}

LedgerSum SumOf(const std::vector<LedgerEntry>& entries) {
  LedgerSum sum;
  for (const LedgerEntry& entry : entries) AddTo(&sum, entry);
  return sum;
}

LedgerSum Ledger::Sum(AgentRole role) const {
  LedgerSum sum;
  for (const LedgerEntry& entry : entries_) {
    if (entry.role == role) AddTo(&sum, entry);
  }
  return sum;
}

Json Ledger::ToJson() const {
  Json json = Sum().ToJson();
  json["wall_seconds"] = wall_seconds_;
  json["device_seconds"] = device_seconds_;
  for (const AgentRole role : {AgentRole::kCoder, AgentRole::kJudge}) {
    json["by_role"][std::string(AgentRoleName(role))] = Sum(role).ToJson();
  }
  return json;
}

}  // namespace cudaforge
