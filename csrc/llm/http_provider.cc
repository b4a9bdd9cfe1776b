#include "llm/http_provider.h"

#include <algorithm>
#include <atomic>

#include "base/text.h"
#include "llm/http.h"
#include "llm/secrets.h"
#include "llm/sse.h"

namespace cudaforge {
namespace {

constexpr size_t kMaxErrorBody = size_t{64} << 10;

// Reads the body of one answer, streamed or not, whatever its content type.
class BodyReader {
 public:
  BodyReader(const ChatProtocol& protocol, const ReplyLimits& limits, ReplyBuilder* reply)
      : protocol_(protocol),
        reply_(reply),
        max_(MostJsonBytes(limits.max_reply_bytes)),
        sse_(max_) {}

  Status Take(const HttpAnswer& answer, std::string_view bytes) {
    if (answer.status < 200 || answer.status > 299) {  // the body has the error message
      text_.append(bytes.substr(0, kMaxErrorBody - std::min(kMaxErrorBody, text_.size())));
      return Status::Ok();
    }
    if (form_ == Form::kUnknown) {
      const size_t first = bytes.find_first_not_of("\xef\xbb\xbf \t\r\n");
      if (first == std::string_view::npos) return Status::Ok();
      form_ = bytes[first] == '{' ? Form::kDocument : Form::kEvents;
      bytes.remove_prefix(first);
    }
    if (text_.size() < kMaxErrorBody || form_ == Form::kDocument) text_.append(bytes);
    if (form_ == Form::kEvents) return sse_.Feed(bytes, Sink());
    if (text_.size() <= max_) return Status::Ok();
    return Status::Timeout("the answer is over the limit of " + std::to_string(max_) + " bytes");
  }

  // The body of an answer that is no reply.
  const std::string& text() const { return text_; }

  Status Finish() {
    if (form_ == Form::kDocument) {
      const Result<Json> document = ParseJson(text_);
      if (!document.ok()) return Status::Corruption("the answer: " + document.status().message());
      return protocol_.OnDocument(*document, reply_);
    }
    CF_RETURN_IF_ERROR(sse_.Finish(Sink()));
    return events_ > 0 ? Status::Ok()
                       : Status::Corruption(
                             "the answer is neither a JSON object nor a stream of "
                             "events: " +
                             Printable(text_, 200));
  }

 private:
  enum class Form { kUnknown, kDocument, kEvents };

  SseParser::Sink Sink() {
    return [this](const SseEvent& event) {
      ++events_;
      return protocol_.OnEvent(event, reply_);
    };
  }

  const ChatProtocol& protocol_;
  ReplyBuilder* reply_;
  size_t max_;
  SseParser sse_;
  Form form_ = Form::kUnknown;
  std::string text_;
  size_t events_ = 0;
};

class HttpProvider : public Provider {
 public:
  HttpProvider(std::unique_ptr<ChatProtocol> protocol, HttpProviderOptions options)
      : protocol_(std::move(protocol)),
        options_(std::move(options)),
        secret_(options_.key.size() < kShortestSecret ? "" : options_.key) {}

  std::string name() const override { return protocol_->name(); }

  Result<Reply> Complete(const LlmRequest& request, const Cancel& cancel,
                         const TextSink& on_text) override {
    const RetryClock clock = RealClock(cancel);
    const double start = clock.now();
    const double deadline = start + request.limits.total_s;
    const Json body = protocol_->Body(request, options_.stream);
    bool other_names = other_names_;
    HttpRequest post{options_.endpoint, protocol_->path(), protocol_->Headers(options_.key),
                     LenientText(other_names ? protocol_->WithOtherNames(body) : body)};
    Reply reply;
    int attempts = 0;
    const Status status = RunWithRetries(
        options_.retry, clock, deadline,
        [&] {
          const auto try_once = [&](bool* wants_other_names) {
            const HttpLimits limits{request.limits.connect_s, request.limits.first_byte_s,
                                    request.limits.idle_s, deadline - clock.now(),
                                    request.limits.max_wire_bytes};
            return TryOnce(post, request.limits, limits, cancel, on_text, &reply,
                           wants_other_names);
          };
          bool wants_other_names = false;
          Attempt attempt = try_once(&wants_other_names);
          if (!wants_other_names || other_names) return attempt;
          other_names = true;
          post.body = LenientText(protocol_->WithOtherNames(body));
          ++attempts;
          return try_once(&wants_other_names);
        },
        &attempts);
    if (!status.ok()) {
      return Status(status.code(), name() + ": " + WithoutKey(status.message(), secret_));
    }
    if (other_names) other_names_ = true;
    reply.attempts = attempts;
    reply.seconds = clock.now() - start;
    return reply;
  }

 private:
  Attempt TryOnce(const HttpRequest& post, const ReplyLimits& reply_limits,
                  const HttpLimits& limits, const Cancel& cancel, const TextSink& on_text,
                  Reply* reply, bool* wants_other_names) const {
    ReplyBuilder builder(reply_limits, secret_, on_text);
    BodyReader reader(*protocol_, reply_limits, &builder);
    HttpAnswer answer;
    const HttpBodySink take = [&reader](const HttpAnswer& head, std::string_view bytes) {
      return reader.Take(head, bytes);
    };
    Status status = HttpPost(post, limits, cancel, take, &answer);
    // A connection error after the end of the reply is harmless.
    if (builder.done && status.code() == StatusCode::kUnavailable) status = Status::Ok();
    if (!status.ok()) return {status, answer.connection_fault || builder.worth_retry(), {}};
    if (answer.status < 200 || answer.status > 299) {
      *wants_other_names = answer.status == 400 && protocol_->NeedsOtherNames(reader.text());
      return Refusal(answer, reader.text());
    }
    status = reader.Finish();
    if (status.ok()) {
      Result<Reply> whole = builder.Finish();
      status = whole.status();
      if (whole.ok()) *reply = *std::move(whole);
    }
    return {status, builder.worth_retry(), {}};
  }

  Attempt Refusal(const HttpAnswer& answer, const std::string& body) const {
    std::string message = "HTTP " + std::to_string(answer.status);
    if (answer.status >= 300 && answer.status <= 399) message += ", and redirects are not followed";
    const std::string said = ErrorText(body, secret_);
    if (!said.empty()) message += ": " + said;
    const bool transient = IsTransientHttpStatus(answer.status);
    return {{transient ? StatusCode::kUnavailable : StatusCode::kInvalidArgument, message},
            transient,
            answer.retry_after};
  }

  const std::unique_ptr<ChatProtocol> protocol_;
  const HttpProviderOptions options_;
  std::atomic<bool> other_names_ = false;  // the service needs ChatProtocol::WithOtherNames
  const std::string secret_;               // the key, if it is long enough
};

}  // namespace

std::unique_ptr<Provider> MakeHttpProvider(std::unique_ptr<ChatProtocol> protocol,
                                           HttpProviderOptions options) {
  return std::make_unique<HttpProvider>(std::move(protocol), std::move(options));
}

}  // namespace cudaforge
