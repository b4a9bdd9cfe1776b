// The differences between chat services over HTTP: the form of requests and answers.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "llm/message.h"
#include "llm/provider.h"
#include "llm/secrets.h"
#include "llm/sse.h"

namespace cudaforge {

// Builds a reply from an answer's pieces, within the limits and without the key.
class ReplyBuilder {
 public:
  ReplyBuilder(const ReplyLimits& limits, std::string key, const TextSink& on_text)
      : limits_(limits), key_(key), filter_(std::move(key)), on_text_(on_text) {}

  // Appends to the reply's text. kTimeout over limits.max_reply_bytes.
  Status Append(std::string_view text);
  // The service reported an error in the middle of its answer. Returns kUnavailable.
  Status Fault(const Json& error);
  // Takes the service's token counts. The largest of several wins, because counts grow with the
  // reply.
  void Count(const Usage& usage);
  void SetModel(const Json& object, const char* field);
  // Ends the reply. kCorruption: the service did not mark it as complete.
  Result<Reply> Finish();

  std::string finish_reason;
  bool done = false;  // the service marked the reply as complete

  // True if the error may be temporary and no text was passed on yet.
  bool worth_retry() const { return transient_ && bytes_ == 0; }

 private:
  void PassOn(const std::string& text);

  const ReplyLimits& limits_;
  std::string key_;
  KeyFilter filter_;
  const TextSink& on_text_;
  Reply reply_;
  size_t bytes_ = 0;  // of text appended, before the filter
  bool transient_ = false;
};

// Stateless and thread-safe.
class ChatProtocol {
 public:
  ChatProtocol() = default;
  ChatProtocol(const ChatProtocol&) = delete;
  ChatProtocol& operator=(const ChatProtocol&) = delete;
  virtual ~ChatProtocol() = default;

  virtual std::string name() const = 0;  // "openai:gpt-5"
  virtual std::string path() const = 0;  // after the base URL
  virtual std::vector<std::string> Headers(const std::string& key) const = 0;
  virtual Json Body(const LlmRequest& request, bool stream) const = 0;
  // Returns true if a service that refused Body's request (HTTP 400, `refusal`) needs other field
  // names; the next function makes that request.
  virtual bool NeedsOtherNames(std::string_view /*refusal*/) const { return false; }
  virtual Json WithOtherNames(Json body) const { return body; }
  // Handles one event of a streamed answer, or a whole answer. kCorruption: malformed.
  virtual Status OnEvent(const SseEvent& event, ReplyBuilder* reply) const = 0;
  virtual Status OnDocument(const Json& document, ReplyBuilder* reply) const = 0;
};

// Chat completions. `own_service`: OpenAI itself, which names one field differently from most
// compatible servers.
std::unique_ptr<ChatProtocol> MakeOpenAiProtocol(std::string model, bool own_service);
// Anthropic messages. `versioned_url`: the base URL ends in /v1.
std::unique_ptr<ChatProtocol> MakeAnthropicProtocol(std::string model, bool versioned_url);

// Extracts an error message: {"error": {"message"}}, {"error": text}, {"message"}, or the text
// itself. At most 500 printable characters, without the key.
std::string ErrorText(std::string_view body, std::string_view key);

}  // namespace cudaforge
