#include "llm/transcript.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <optional>
#include <system_error>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "llm/numbered_files.h"
#include "llm/secrets.h"

namespace cudaforge {
namespace {

constexpr std::string_view kExchangeSuffix = "-exchange.json";
constexpr size_t kMaxExchangeBytes = size_t{16} << 20;
constexpr size_t kMaxFolderBytes = size_t{256} << 20;  // of all replayed exchanges

class RecordingProvider : public Provider {
 public:
  RecordingProvider(const std::string& folder, std::unique_ptr<Provider> inner,
                    std::vector<std::string> secrets)
      : folder_(AbsolutePath(folder)), inner_(std::move(inner)), secrets_(std::move(secrets)) {}

  std::string name() const override { return inner_->name(); }
  bool is_metered() const override { return inner_->is_metered(); }
  bool is_replay() const override { return inner_->is_replay(); }

  Result<Reply> Complete(const LlmRequest& request, const Cancel& cancel,
                         const TextSink& on_text) override {
    Result<Reply> reply = inner_->Complete(request, cancel, on_text);
    Json exchange = {{"provider", inner_->name()}, {"request", ToJson(request)}};
    if (reply.ok()) {
      exchange["reply"] = ToJson(*reply);
    } else {
      exchange["error"] = {{"code", StatusCodeName(reply.status().code())},
                           {"message", reply.status().message()}};
    }
    const std::string whole = exchange.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
    const std::string text = WithoutKeys(whole, secrets_);
    const Cancel never;  // a cancelled exchange is saved too
    const auto saved = WriteNumbered(folder_, kExchangeSuffix, text, never);
    if (!saved.ok()) return Status::IoError("recording: " + saved.status().message());
    return reply;
  }

 private:
  const std::string folder_;
  const std::unique_ptr<Provider> inner_;
  const std::vector<std::string> secrets_;
};

struct Exchange {
  std::string file;
  Json request;
  Result<Reply> reply = Status::Internal("no reply");
  bool given = false;
};

// Replaces each digit of the mark that its prompt made (parts/task.mustache) by 0.
std::string WithoutMark(std::string text) {
  constexpr std::string_view kBefore = "The marks of this message carry the number ";
  constexpr size_t kDigits = 16;
  const size_t at = text.find(kBefore);
  if (at == std::string::npos) return text;
  const std::string mark = text.substr(at + kBefore.size(), kDigits);
  if (mark.size() != kDigits || mark.find_first_not_of("0123456789abcdef") != std::string::npos ||
      !text.substr(at + kBefore.size() + kDigits, 1).starts_with('.')) {
    return text;
  }
  for (size_t i = text.find(mark); i != std::string::npos; i = text.find(mark, i + kDigits)) {
    text.replace(i, kDigits, kDigits, '0');
  }
  return text;
}

// The parts of a request that must match a recorded one.
Json Essence(const Json& request) {
  Json messages = MemberOrNull(request, "messages");
  if (messages.is_array()) {
    for (Json& message : messages) {
      const Json& content = MemberOrNull(message, "content");
      if (content.is_string()) message["content"] = WithoutMark(content.get<std::string>());
    }
  }
  return {{"role", MemberOrNull(request, "role")}, {"messages", std::move(messages)}};
}

// The text around byte `at`, for a message.
std::string Excerpt(const std::string& text, size_t at) {
  return "\"" + Printable(std::string_view(text).substr(std::min(at, text.size()), 60), 40) + "\"";
}

// "messages[2].content, byte 17: recorded "a...", now "b..."" for two different values.
std::string FirstDifference(const std::string& field, const Json& recorded, const Json& now) {
  if (recorded.type() == now.type() && recorded.is_object()) {
    for (const auto& [name, value] : recorded.items()) {
      const std::string inner = field.empty() ? name : field + "." + name;
      if (!now.contains(name)) return inner + ": recorded, but not there now";
      if (value != now[name]) return FirstDifference(inner, value, now[name]);
    }
  }
  if (recorded.type() == now.type() && recorded.is_array()) {
    for (size_t i = 0; i < std::min(recorded.size(), now.size()); ++i) {
      if (recorded[i] == now[i]) continue;
      return FirstDifference(field + "[" + std::to_string(i) + "]", recorded[i], now[i]);
    }
    return field + ": " + std::to_string(recorded.size()) + " recorded, " +
           std::to_string(now.size()) + " now";
  }
  const bool strings = recorded.is_string() && now.is_string();
  const std::string a = strings ? recorded.get<std::string>() : LenientText(recorded);
  const std::string b = strings ? now.get<std::string>() : LenientText(now);
  const size_t at =
      static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  return field + ", byte " + std::to_string(at) + ": recorded " + Excerpt(a, at) + ", now " +
         Excerpt(b, at);
}

Result<Reply> RecordedError(const Json& error) {
  CF_ASSIGN_OR_RETURN(const std::string code, JsonString(error, "code"));
  CF_ASSIGN_OR_RETURN(const std::string message, JsonString(error, "message"));
  const std::optional<StatusCode> known = ParseStatusCode(code);
  if (!known.has_value() || *known == StatusCode::kOk) return Status::Corruption("code: unknown");
  return Status(*known, message);
}

Result<Exchange> ReadExchange(const std::string& path) {
  CF_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxExchangeBytes));
  const Result<Json> json = ParseJson(text, {.max_bytes = kMaxExchangeBytes, .max_depth = 64});
  if (!json.ok()) return Status::Corruption(path + ": " + json.status().message());
  if (!MemberOrNull(*json, "request").is_object()) {
    return Status::Corruption(path + ": request: missing");
  }
  Exchange exchange;
  exchange.file = path;
  exchange.request = Essence((*json)["request"]);
  const Json& error = MemberOrNull(*json, "error");
  if (error.is_null()) {
    exchange.reply = ReplyFromJson(MemberOrNull(*json, "reply"));
    if (!exchange.reply.ok()) {
      return Status::Corruption(path + ": " + exchange.reply.status().message());
    }
    return exchange;
  }
  if (!JsonString(error, "code").ok() || !JsonString(error, "message").ok()) {
    return Status::Corruption(path + ": error: expected a code and a message");
  }
  exchange.reply = RecordedError(error);
  return exchange;
}

// kCorruption: the exchanges are too large for the memory.
Status CheckSizes(const std::string& folder, const std::vector<std::string>& names) {
  size_t sum = 0;
  for (const std::string& name : names) {
    std::error_code failed;  // reading the file gives a better error
    const auto size = std::filesystem::file_size(folder + "/" + name, failed);
    if (failed) continue;
    if (size > kMaxExchangeBytes) {
      return Status::Corruption(folder + "/" + name + ": over the limit of " +
                                std::to_string(kMaxExchangeBytes) + " bytes");
    }
    sum += size;
  }
  if (sum <= kMaxFolderBytes) return Status::Ok();
  return Status::Corruption(folder + ": its exchanges are over the limit of " +
                            std::to_string(kMaxFolderBytes) + " bytes");
}

class ReplayProvider : public Provider {
 public:
  ReplayProvider(std::string folder, std::vector<Exchange> exchanges)
      : folder_(std::move(folder)), exchanges_(std::move(exchanges)) {}

  std::string name() const override { return "replay:" + folder_; }
  bool is_metered() const override { return false; }
  bool is_replay() const override { return true; }

  Result<Reply> Complete(const LlmRequest& request, const Cancel& cancel,
                         const TextSink& on_text) override {
    if (cancel.IsSet()) return Status::Cancelled(name() + ": cancelled");
    Result<Reply> reply = Find(Essence(ToJson(request)));
    if (reply.ok() && on_text) on_text(reply->content);
    return reply;
  }

 private:
  Result<Reply> Find(const Json& request) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Exchange* next = nullptr;
    for (Exchange& exchange : exchanges_) {
      if (exchange.given) continue;
      if (exchange.request == request) {
        exchange.given = true;
        return exchange.reply;
      }
      if (next == nullptr && exchange.request["role"] == request["role"]) next = &exchange;
    }
    if (next == nullptr) {
      return Status::NotFound(name() + ": all recorded replies for a " +
                              LenientText(request["role"]) + " are used up");
    }
    next->given = true;
    Result<Reply> reply = next->reply;
    if (reply.ok()) {
      reply->note =
          "this recorded reply is for a slightly different request (prompts hold "
          "measured times): " +
          FirstDifference("", next->request, request) + "; " + next->file;
    }
    return reply;
  }

  const std::string folder_;
  std::mutex mutex_;
  std::vector<Exchange> exchanges_;  // guarded by mutex_
};

}  // namespace

Result<std::unique_ptr<Provider>> MakeRecordingProvider(const std::string& folder,
                                                        std::unique_ptr<Provider> inner,
                                                        std::vector<std::string> secrets) {
  CF_RETURN_IF_ERROR(MakeDirs(folder));
  return std::unique_ptr<Provider>(
      std::make_unique<RecordingProvider>(folder, std::move(inner), std::move(secrets)));
}

Result<std::unique_ptr<Provider>> MakeReplayProvider(const std::string& folder) {
  CF_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListNumbered(folder, kExchangeSuffix));
  if (names.empty()) return Status::NotFound(folder + ": no exchange is recorded there");
  CF_RETURN_IF_ERROR(CheckSizes(folder, names));
  std::vector<Exchange> exchanges;
  for (const std::string& name : names) {
    CF_ASSIGN_OR_RETURN(Exchange exchange, ReadExchange(folder + "/" + name));
    exchanges.push_back(std::move(exchange));
  }
  return std::unique_ptr<Provider>(std::make_unique<ReplayProvider>(folder, std::move(exchanges)));
}

}  // namespace cudaforge
