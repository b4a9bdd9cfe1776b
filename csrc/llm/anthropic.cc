// The Anthropic messages API.
#include <algorithm>

#include "llm/chat_protocol.h"

namespace cudaforge {
namespace {

class AnthropicProtocol : public ChatProtocol {
 public:
  AnthropicProtocol(std::string model, bool versioned_url)
      : model_(std::move(model)), versioned_url_(versioned_url) {}

  std::string name() const override { return "anthropic:" + model_; }
  std::string path() const override { return versioned_url_ ? "/messages" : "/v1/messages"; }

  std::vector<std::string> Headers(const std::string& key) const override {
    std::vector<std::string> headers = {"anthropic-version: 2023-06-01"};
    if (!key.empty()) headers.push_back("x-api-key: " + key);
    return headers;
  }

  // System messages go into a separate field.
  Json Body(const LlmRequest& request, bool stream) const override {
    Json messages = Json::array();
    std::string system;
    for (Json& message : ToJson(request.messages)) {
      if (message["role"] != "system") {
        messages.push_back(std::move(message));
        continue;
      }
      if (!system.empty()) system += "\n\n";
      system += message["content"].get_ref<const std::string&>();
    }
    Json body = {{"model", model_},
                 {"max_tokens", request.limits.max_output_tokens},
                 {"messages", std::move(messages)}};
    if (!system.empty()) body["system"] = system;
    if (stream) body["stream"] = true;
    return body;
  }

  Status OnEvent(const SseEvent& event, ReplyBuilder* reply) const override {
    const Result<Json> parsed = ParseJson(event.data);
    if (!parsed.ok()) {
      return Status::Corruption("a piece of the answer: " + parsed.status().message());
    }
    const Json& data = *parsed;
    const Json& type = MemberOrNull(data, "type");
    if (!type.is_string()) return Status::Corruption("a piece of the answer has no type");
    if (type == "error") return reply->Fault(MemberOrNull(data, "error"));
    if (type == "message_start") {
      const Json& message = MemberOrNull(data, "message");
      reply->SetModel(message, "model");
      ReadUsage(MemberOrNull(message, "usage"), reply);
    } else if (type == "content_block_start") {
      return ReadBlock(MemberOrNull(data, "content_block"), "text", reply);
    } else if (type == "content_block_delta") {
      return ReadBlock(MemberOrNull(data, "delta"), "text_delta", reply);
    } else if (type == "message_delta") {
      ReadFinish(MemberOrNull(data, "delta"), reply);
      ReadUsage(MemberOrNull(data, "usage"), reply);
    } else if (type == "message_stop") {
      reply->done = true;
    }  // ping, content_block_stop, and unknown types
    return Status::Ok();
  }

  Status OnDocument(const Json& document, ReplyBuilder* reply) const override {
    if (MemberOrNull(document, "type") == "error") {
      return reply->Fault(MemberOrNull(document, "error"));
    }
    const Json& content = MemberOrNull(document, "content");
    if (!content.is_array()) return Status::Corruption("the answer's content is no array");
    for (const Json& block : content) CF_RETURN_IF_ERROR(ReadBlock(block, "text", reply));
    reply->SetModel(document, "model");
    ReadUsage(MemberOrNull(document, "usage"), reply);
    ReadFinish(document, reply);
    reply->done = true;
    return Status::Ok();
  }

 private:
  // Appends the text of a block or delta of type `type`. Other types (thinking) are ignored.
  static Status ReadBlock(const Json& block, const char* type, ReplyBuilder* reply) {
    if (MemberOrNull(block, "type") != type) return Status::Ok();
    const Json& text = MemberOrNull(block, "text");
    if (!text.is_string()) return Status::Corruption("text: expected a string");
    return reply->Append(text.get_ref<const std::string&>());
  }

  static void ReadFinish(const Json& object, ReplyBuilder* reply) {
    const Json& reason = MemberOrNull(object, "stop_reason");
    if (reason.is_string()) reply->finish_reason = reason.get<std::string>();
  }

  // input_tokens excludes tokens read from or written to the cache.
  static void ReadUsage(const Json& usage, ReplyBuilder* reply) {
    Usage counts;
    if (const auto input = TokenCount(usage, "input_tokens"); input.has_value()) {
      counts.cached_input_tokens = TokenCount(usage, "cache_read_input_tokens");
      const int64_t written = TokenCount(usage, "cache_creation_input_tokens").value_or(0);
      counts.input_tokens =
          std::min(*input + counts.cached_input_tokens.value_or(0) + written, kMostTokens);
    }
    counts.output_tokens = TokenCount(usage, "output_tokens");
    reply->Count(counts);
  }

  std::string model_;
  bool versioned_url_;
};

}  // namespace

std::unique_ptr<ChatProtocol> MakeAnthropicProtocol(std::string model, bool versioned_url) {
  return std::make_unique<AnthropicProtocol>(std::move(model), versioned_url);
}

}  // namespace cudaforge
