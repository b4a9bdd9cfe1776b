// A request to a language model and its reply, for all providers.
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

// The agent that sends the request.
enum class AgentRole { kCoder, kJudge };
std::string_view AgentRoleName(AgentRole role);  // "coder", "judge"

enum class Speaker { kSystem, kUser, kAssistant };

struct Message {
  Speaker author = Speaker::kUser;
  std::string content;  // UTF-8; invalid parts are sent as U+FFFD
};

struct ReplyLimits {
  int64_t max_output_tokens = 16384;
  size_t max_reply_bytes = size_t{1} << 20;  // of the reply's text
  size_t max_wire_bytes = size_t{32} << 20;  // of everything in one answer, including headers
  double connect_s = 15;                     // name look-up, TCP and TLS
  double first_byte_s = 300;  // from the start of an attempt to the first byte of the body
  double idle_s = 300;        // between two bytes of the body
  double total_s = 900;       // over all attempts and the waits between them
};

struct LlmRequest {
  AgentRole role = AgentRole::kCoder;
  std::vector<Message> messages;
  ReplyLimits limits;
};

// Larger counts are invalid.
inline constexpr int64_t kMostTokens = 1'000'000'000'000;

// Tokens as the provider counted them; missing counts are absent.
struct Usage {
  std::optional<int64_t> input_tokens;         // all input, cached or not
  std::optional<int64_t> cached_input_tokens;  // the part of the input from a cache
  std::optional<int64_t> output_tokens;        // includes hidden reasoning
};

struct Reply {
  std::string content;  // valid UTF-8
  Usage usage;
  std::string model;  // the provider's name for it; may be empty
  // As the provider names it ("stop", "end_turn", "length"); may be empty.
  std::string finish_reason;
  int attempts = 1;    // requests made, including failed ones
  double seconds = 0;  // from the call to the end of the reply, including waits
  // The provider's remark on the reply, for display; may be empty. Not in ToJson.
  std::string note;
};

// Returns true if the reply ended because of max_output_tokens.
bool IsTruncated(const Reply& reply);

// The JSON of requests and replies in files and pipes. All strings are valid UTF-8.
Json ToJson(const std::vector<Message>& messages);  // [{"role": "user", "content": "..."}]
Json ToJson(const ReplyLimits& limits);
Json ToJson(const LlmRequest& request);  // {"role", "messages", "limits"}
Json ToJson(const Usage& usage);         // without absent counts
Json ToJson(const Reply& reply);

// Reads {"content": text} with, optionally, usage, model, finish_reason, attempts and seconds
// (clamped to 0 to 1e9). Ignores other fields. kCorruption names the field.
Result<Reply> ReplyFromJson(const Json& json);

// The maximum JSON size of a reply with `bytes` bytes of text: six each (\u0001), plus the other
// fields.
size_t MostJsonBytes(size_t bytes);

// Parses a reply from `where`, with which errors begin. kCorruption, without any of `secrets`: it
// has another form. kTimeout: the content is over `max_reply_bytes`.
Result<Reply> ReadReply(std::string_view text, const std::string& where, size_t max_reply_bytes,
                        const std::vector<std::string>& secrets);

// A token count; nullopt unless it is an integer from 0 to kMostTokens.
std::optional<int64_t> TokenCount(const Json& object, const char* field);

}  // namespace cudaforge
