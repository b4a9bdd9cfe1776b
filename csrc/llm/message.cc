#include "llm/message.h"

#include <algorithm>

#include "base/text.h"
#include "llm/secrets.h"

namespace cudaforge {
namespace {

// `text` with U+FFFD for invalid UTF-8.
std::string AsUtf8(const std::string& text) { return LenientCopy(text).get<std::string>(); }

void PutCount(Json* json, const char* field, const std::optional<int64_t>& count) {
  if (count.has_value()) (*json)[field] = *count;
}

Status BadField(const std::string& what) { return Status::Corruption("reply: " + what); }

std::string_view SpeakerName(Speaker author) {
  switch (author) {
    case Speaker::kSystem:
      return "system";
    case Speaker::kUser:
      return "user";
    case Speaker::kAssistant:
      return "assistant";
  }
  return "user";
}

}  // namespace

std::string_view AgentRoleName(AgentRole role) {
  return role == AgentRole::kCoder ? "coder" : "judge";
}

bool IsTruncated(const Reply& reply) {
  return reply.finish_reason == "length" || reply.finish_reason == "max_tokens";
}

Json ToJson(const std::vector<Message>& messages) {
  Json list = Json::array();
  for (const Message& message : messages) {
    list.push_back({{"role", SpeakerName(message.author)}, {"content", AsUtf8(message.content)}});
  }
  return list;
}

Json ToJson(const ReplyLimits& limits) {
  return {{"max_output_tokens", limits.max_output_tokens},
          {"max_reply_bytes", limits.max_reply_bytes},
          {"total_seconds", limits.total_s}};
}

Json ToJson(const LlmRequest& request) {
  return {{"role", AgentRoleName(request.role)},
          {"messages", ToJson(request.messages)},
          {"limits", ToJson(request.limits)}};
}

Json ToJson(const Usage& usage) {
  Json json = Json::object();
  PutCount(&json, "input_tokens", usage.input_tokens);
  PutCount(&json, "cached_input_tokens", usage.cached_input_tokens);
  PutCount(&json, "output_tokens", usage.output_tokens);
  return json;
}

Json ToJson(const Reply& reply) {
  return {{"content", AsUtf8(reply.content)}, {"usage", ToJson(reply.usage)},
          {"model", AsUtf8(reply.model)},     {"finish_reason", AsUtf8(reply.finish_reason)},
          {"attempts", reply.attempts},       {"seconds", reply.seconds}};
}

std::optional<int64_t> TokenCount(const Json& object, const char* field) {
  const Json& value = MemberOrNull(object, field);
  if (!value.is_number_integer()) return std::nullopt;
  // As unsigned, a negative number is far above the limit.
  const auto count = value.get<uint64_t>();
  if (count > uint64_t{kMostTokens}) return std::nullopt;
  return static_cast<int64_t>(count);
}

Result<Reply> ReplyFromJson(const Json& json) {
  if (!json.is_object()) return BadField("expected an object with the field content");
  Reply reply;
  const auto content = json.find("content");
  if (content == json.end()) return BadField("content: missing");
  if (!content->is_string()) return BadField("content: expected a string");
  reply.content = content->get<std::string>();
  for (const auto& [field, text] :
       {std::pair("model", &reply.model), std::pair("finish_reason", &reply.finish_reason)}) {
    const auto it = json.find(field);
    if (it == json.end() || it->is_null()) continue;
    if (!it->is_string()) return BadField(std::string(field) + ": expected a string");
    *text = it->get<std::string>();
  }
  if (const auto usage = json.find("usage"); usage != json.end() && !usage->is_null()) {
    if (!usage->is_object()) return BadField("usage: expected an object");
    reply.usage = {TokenCount(*usage, "input_tokens"), TokenCount(*usage, "cached_input_tokens"),
                   TokenCount(*usage, "output_tokens")};
  }
  if (const auto n = TokenCount(json, "attempts"); n.has_value() && *n >= 1 && *n <= 1000) {
    reply.attempts = static_cast<int>(*n);
  }
  if (const auto it = json.find("seconds"); it != json.end() && it->is_number()) {
    const double seconds = it->get<double>();
    reply.seconds = seconds > 0 ? std::min(seconds, 1e9) : 0;
  }
  return reply;
}

size_t MostJsonBytes(size_t bytes) { return 6 * bytes + (size_t{64} << 10); }

Result<Reply> ReadReply(std::string_view text, const std::string& where, size_t max_reply_bytes,
                        const std::vector<std::string>& secrets) {
  const Result<Json> json = ParseJson(text);
  if (!json.ok()) {
    return Status::Corruption(where + ": not one JSON object: " +
                              Printable(WithoutKeys(json.status().message(), secrets), 500));
  }
  Result<Reply> reply = ReplyFromJson(*json);
  if (!reply.ok()) return Status::Corruption(where + ": " + reply.status().message());
  if (reply->content.size() <= max_reply_bytes) return reply;
  return Status::Timeout(where + ": the reply is over the limit of " +
                         std::to_string(max_reply_bytes) + " bytes");
}

}  // namespace cudaforge
