// What is asked of a language model and what comes back, whoever provides it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace cudaforge {

// The agent that asks.
enum class AgentRole { kCoder, kJudge };
std::string_view AgentRoleName(AgentRole role);  // "coder", "judge"

enum class Speaker { kSystem, kUser, kAssistant };

struct Message {
  Speaker author = Speaker::kUser;
  std::string content;  // UTF-8; what is no UTF-8 in it is sent as U+FFFD
};

struct ReplyLimits {
  int64_t max_output_tokens = 16384;
  size_t max_reply_bytes = size_t{1} << 20;  // of the reply's text
  size_t max_wire_bytes = size_t{32} << 20;  // of all that one answer brings, headers and framing
  double connect_s = 15;                     // name look-up, TCP and TLS
  double first_byte_s = 300;  // from the start of an attempt to the first byte of the answer's body
  double idle_s = 300;        // between two bytes of the body
  double total_s = 900;       // over all attempts and the waits between them
};

struct LlmRequest {
  AgentRole role = AgentRole::kCoder;
  std::vector<Message> messages;
  ReplyLimits limits;
};

// No call takes more tokens: a count above it is none.
inline constexpr int64_t kMostTokens = 1'000'000'000'000;

// Tokens as the provider counted them; what it did not say is absent.
struct Usage {
  std::optional<int64_t> input_tokens;         // all of the input, cached or not
  std::optional<int64_t> cached_input_tokens;  // the part of the input that came from a cache
  std::optional<int64_t> output_tokens;        // hidden reasoning included
};

struct Reply {
  std::string content;  // valid UTF-8
  Usage usage;
  std::string model;  // as the provider names it; may be empty
  // The provider's own word ("stop", "end_turn", "length"); may be empty.
  std::string finish_reason;
  int attempts = 1;    // requests made, failed ones included
  double seconds = 0;  // from the call to the end of the reply, waits included
  // What a provider has to say about the reply, for a person; may be empty. ToJson
  // leaves it out.
  std::string note;
};

// True when the reply ended because of max_output_tokens.
bool IsTruncated(const Reply& reply);

// The forms in which requests and replies are written to files and pipes. Every string in them is
// valid UTF-8.
Json ToJson(const std::vector<Message>& messages);  // [{"role": "user", "content": "..."}]
Json ToJson(const ReplyLimits& limits);
Json ToJson(const LlmRequest& request);  // {"role", "messages", "limits"}
Json ToJson(const Usage& usage);         // without what is absent
Json ToJson(const Reply& reply);

// Reads {"content": text} with, optionally, usage, model, finish_reason, attempts and seconds (cut
// to 0 to 1e9); other fields are passed over. Errors: kCorruption with the field's name.
Result<Reply> ReplyFromJson(const Json& json);

// The most bytes that a reply whose text has `bytes` can take as JSON: six for one (\u0001), and
// some for the fields around it.
size_t MostJsonBytes(size_t bytes);

// ReplyFromJson of a text that came from `where`, with which errors begin. Errors: kCorruption,
// with none of `secrets`, for what is no such object; kTimeout for a reply whose content is over
// `max_reply_bytes`.
Result<Reply> ReadReply(std::string_view text, const std::string& where, size_t max_reply_bytes,
                        const std::vector<std::string>& secrets);

// A field that counts tokens, nullopt unless it is there and an integer from 0 to kMostTokens.
std::optional<int64_t> TokenCount(const Json& object, const char* field);

}  // namespace cudaforge
