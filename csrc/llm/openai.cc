// Chat completions, as defined by OpenAI and implemented by many servers.
#include "llm/chat_protocol.h"

namespace cudaforge {
namespace {

// Neither name contains the other. OpenAI's newer models refuse the old name; many other servers
// know only the old one. Any address may lead to an OpenAI model.
constexpr const char* kOldLimit = "max_tokens";
constexpr const char* kNewLimit = "max_completion_tokens";

class OpenAiProtocol : public ChatProtocol {
 public:
  OpenAiProtocol(std::string model, bool own_service)
      : model_(std::move(model)),
        limit_(own_service ? kNewLimit : kOldLimit),
        other_limit_(own_service ? kOldLimit : kNewLimit) {}

  std::string name() const override { return "openai:" + model_; }
  std::string path() const override { return "/chat/completions"; }

  std::vector<std::string> Headers(const std::string& key) const override {
    if (key.empty()) return {};
    return {"Authorization: Bearer " + key};
  }

  Json Body(const LlmRequest& request, bool stream) const override {
    Json body = {{"model", model_}, {"messages", ToJson(request.messages)}};
    body[limit_] = request.limits.max_output_tokens;
    if (stream) {
      body["stream"] = true;
      body["stream_options"] = {{"include_usage", true}};
    }
    return body;
  }

  bool NeedsOtherNames(std::string_view refusal) const override {
    return refusal.find(other_limit_) != std::string_view::npos;
  }
  Json WithOtherNames(Json body) const override {
    body[other_limit_] = body[limit_];
    body.erase(limit_);
    return body;
  }

  Status OnEvent(const SseEvent& event, ReplyBuilder* reply) const override {
    if (event.data == "[DONE]") {
      reply->done = true;
      return Status::Ok();
    }
    const Result<Json> chunk = ParseJson(event.data);
    if (!chunk.ok())
      return Status::Corruption("a piece of the answer: " + chunk.status().message());
    return Read(*chunk, "delta", reply);
  }

  Status OnDocument(const Json& document, ReplyBuilder* reply) const override {
    CF_RETURN_IF_ERROR(Read(document, "message", reply));
    if (!MemberOrNull(document, "choices").is_array()) {
      return Status::Corruption("the answer has no field choices");
    }
    reply->done = true;
    return Status::Ok();
  }

 private:
  // One chunk of a stream, or a whole answer. `text_field`: the field of a choice with its text.
  static Status Read(const Json& chunk, const char* text_field, ReplyBuilder* reply) {
    if (!chunk.is_object()) return Status::Corruption("a piece of the answer is no object");
    if (const Json& error = MemberOrNull(chunk, "error"); !error.is_null()) {
      return reply->Fault(error);
    }
    reply->SetModel(chunk, "model");
    if (const Json& usage = MemberOrNull(chunk, "usage"); usage.is_object())
      ReadUsage(usage, reply);
    const Json& choices = MemberOrNull(chunk, "choices");
    if (choices.is_null() || (choices.is_array() && choices.empty())) return Status::Ok();
    if (!choices.is_array()) return Status::Corruption("choices: expected an array");
    const Json& choice = choices[0];
    const Json& content = MemberOrNull(MemberOrNull(choice, text_field), "content");
    if (content.is_string()) {
      CF_RETURN_IF_ERROR(reply->Append(content.get_ref<const std::string&>()));
    } else if (!content.is_null()) {
      return Status::Corruption(std::string(text_field) + ".content: expected a string");
    }
    if (const Json& reason = MemberOrNull(choice, "finish_reason"); reason.is_string()) {
      reply->finish_reason = reason.get<std::string>();
      reply->done = true;  // usage may follow, and not every server sends [DONE]
    }
    return Status::Ok();
  }

  static void ReadUsage(const Json& usage, ReplyBuilder* reply) {
    auto cached = TokenCount(MemberOrNull(usage, "prompt_tokens_details"), "cached_tokens");
    if (!cached.has_value()) {  // DeepSeek's name for it
      cached = TokenCount(usage, "prompt_cache_hit_tokens");
    }
    reply->Count(
        {TokenCount(usage, "prompt_tokens"), cached, TokenCount(usage, "completion_tokens")});
  }

  std::string model_;
  const char* limit_;
  const char* other_limit_;
};

}  // namespace

std::unique_ptr<ChatProtocol> MakeOpenAiProtocol(std::string model, bool own_service) {
  return std::make_unique<OpenAiProtocol>(std::move(model), own_service);
}

}  // namespace cudaforge
