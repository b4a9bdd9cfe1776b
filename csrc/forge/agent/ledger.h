// The costs of a session's calls: one entry a call, and their sums.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "llm/message.h"

namespace cudaforge {

struct LedgerEntry {
  int round = 0;
  AgentRole role = AgentRole::kCoder;
  std::string provider;       // Provider::name()
  std::string model;          // from the reply, else from the provider's name
  std::string prompt;         // "coder_seed"
  std::string prompt_sha256;  // of the messages that were sent
  Usage usage;                // has at least input and output tokens
  // Part of `usage` is an upper estimate, not the service's count.
  bool estimated = false;
  // A recording answered: nothing was spent, and `usd` is what the call would have cost.
  bool replayed = false;
  std::optional<double> usd;  // empty: the price of the model is unknown
  double seconds = 0;
  std::string error;  // if there was no reply
  std::string note;   // Reply::note

  Json ToJson() const;
  // Parses an entry. kInvalidArgument names the bad field.
  static Result<LedgerEntry> FromJson(const Json& json);
};

// A field that holds seconds or dollars; kInvalidArgument unless it is a number from 0 to 1e9.
Result<double> AmountFromJson(const Json& json, const char* field);

// Estimates the tokens of these messages, rather too high: a third of their bytes, plus some for
// each message.
int64_t EstimateInputTokens(const std::vector<Message>& messages);
// The same for a text.
int64_t EstimateTokens(std::string_view text);

// The sum of two counts that are not negative, saturated at INT64_MAX.
int64_t AddTokens(int64_t a, int64_t b);

struct LedgerSum {
  int64_t calls = 0;
  int64_t failed = 0;     // of them, without a reply
  int64_t estimated = 0;  // of them, with estimated counts
  int64_t replayed = 0;   // of them, answered by a recording
  int64_t unpriced = 0;   // of the rest, with tokens but without a known price
  int64_t input_tokens = 0;
  int64_t cached_input_tokens = 0;  // part of input_tokens
  int64_t output_tokens = 0;
  double usd = 0;           // spent on those whose price is known
  double replayed_usd = 0;  // known costs that the replayed ones would have had
  double seconds = 0;

  // Counts against a limit in dollars. So a replayed session ends where the recorded one did.
  double charged_usd() const { return usd + replayed_usd; }
  int64_t tokens() const { return AddTokens(input_tokens, output_tokens); }
  Json ToJson() const;
};

LedgerSum SumOf(const std::vector<LedgerEntry>& entries);

class Ledger {
 public:
  void Add(LedgerEntry entry) { entries_.push_back(std::move(entry)); }
  const std::vector<LedgerEntry>& entries() const { return entries_; }
  LedgerSum Sum() const { return SumOf(entries_); }
  LedgerSum Sum(AgentRole role) const;
  // Sets the seconds of the session, and the part in which candidates used the device.
  void SetWork(double wall_seconds, double device_seconds) {
    wall_seconds_ = wall_seconds;
    device_seconds_ = device_seconds;
  }
  // The fields of the sum, "wall_seconds" and "device_seconds", and "by_role": {"coder": {...},
  // "judge": {...}}.
  Json ToJson() const;

 private:
  std::vector<LedgerEntry> entries_;
  double wall_seconds_ = 0;
  double device_seconds_ = 0;
};

}  // namespace cudaforge
