#include "llm/chat_protocol.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace cudaforge {
namespace {

constexpr size_t kMaxErrorChars = 500;

std::string ErrorMessage(const Json& body) {
  const Json& error = MemberOrNull(body, "error");
  for (const Json* found :
       {&MemberOrNull(error, "message"), &error, &MemberOrNull(body, "message")}) {
    if (found->is_string()) return found->get<std::string>();
  }
  return LenientText(error.is_null() ? body : error);
}

bool IsPassing(const Json& error) {
  constexpr std::array<std::string_view, 5> kPassing = {
      "overloaded_error", "rate_limit_error", "api_error", "server_error", "timeout_error"};
  const Json& type = MemberOrNull(error, "type");
  if (!type.is_string()) return false;
  const auto& text = type.get_ref<const std::string&>();
  return IsIn(text, kPassing);
}

}  // namespace

std::string ErrorText(std::string_view body, std::string_view key) {
  const Result<Json> json = ParseJson(body);
  const std::string text = json.ok() && json->is_object() ? ErrorMessage(*json) : std::string(body);
  // Removes the key a second time: removing other characters may join its parts.
  const std::string shown = Printable(WithoutKey(text, key), kMaxErrorChars);
  return WithoutKey(shown, key);
}

Status ReplyBuilder::Append(std::string_view text) {
  bytes_ += text.size();
  if (bytes_ > limits_.max_reply_bytes) {
    return Status::Timeout("the reply is over the limit of " +
                           std::to_string(limits_.max_reply_bytes) + " bytes");
  }
  PassOn(filter_.Pass(text));
  return Status::Ok();
}

void ReplyBuilder::PassOn(const std::string& text) {
  reply_.content += text;
  if (on_text_ && !text.empty()) on_text_(text);
}

Status ReplyBuilder::Fault(const Json& error) {
  transient_ = IsPassing(error);
  return Status::Unavailable("the service reports: " +
                             ErrorText(LenientText(Json{{"error", error}}), key_));
}

void ReplyBuilder::Count(const Usage& usage) {
  for (const auto count :
       {&Usage::input_tokens, &Usage::cached_input_tokens, &Usage::output_tokens}) {
    // an absent count is the least
    reply_.usage.*count = std::max(reply_.usage.*count, usage.*count);
  }
}

void ReplyBuilder::SetModel(const Json& object, const char* field) {
  const Json& model = MemberOrNull(object, field);
  if (model.is_string()) {
    reply_.model = Printable(WithoutKey(model.get_ref<const std::string&>(), key_), 200);
  }
}

Result<Reply> ReplyBuilder::Finish() {
  if (!done) {
    return Status::Corruption("the answer ended in the middle, after " + std::to_string(bytes_) +
                              " bytes of text");
  }
  PassOn(filter_.Rest());
  reply_.finish_reason = Printable(WithoutKey(finish_reason, key_), 100);
  return std::move(reply_);
}

}  // namespace cudaforge
