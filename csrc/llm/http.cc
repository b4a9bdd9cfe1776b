#include "llm/http.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>

#include "base/sigpipe.h"
#include "base/text.h"
#include "llm/curl_api.h"

namespace cudaforge {
namespace {

constexpr int kPollMs = 100;  // how often limits and cancellation are checked

using SteadyTime = std::chrono::steady_clock::time_point;

std::string Seconds(double s) { return Significant(s, 6) + " s"; }

long CurlMs(double s) {  // curl's own type
  return std::lround(std::clamp(s, 0.001, 86400.0) * 1000);
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

// Returns true for network faults, and false for certificates or addresses, where a retry is
// useless.
bool MayPass(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
      return true;
    default:
      return false;
  }
}

// One transfer: the state shared by curl's callbacks and the loop around them.
class Transfer {
 public:
  Transfer(const CurlApi& api, const HttpRequest& request, const HttpLimits& limits,
           const HttpBodySink& on_body, HttpAnswer* answer)
      : api_(api), request_(request), limits_(limits), on_body_(on_body), answer_(answer) {}
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
  ~Transfer() {
    if (added_) api_.MultiRemoveHandle(multi_, easy_);
    if (easy_ != nullptr) api_.EasyCleanup(easy_);
    if (multi_ != nullptr) api_.MultiCleanup(multi_);
    api_.SlistFreeAll(headers_);
  }

  Status Run(const Cancel& cancel) {
    CF_RETURN_IF_ERROR(SetUp());
    start_ = last_byte_ = std::chrono::steady_clock::now();
    while (true) {
      int running = 0;
      if (api_.MultiPerform(multi_, &running) != CURLM_OK) return Status::Internal("curl_multi");
      if (!status_.ok()) return status_;
      if (running == 0) return Outcome();
      if (cancel.IsSet()) return Status::Cancelled("cancelled during the request");
      CF_RETURN_IF_ERROR(CheckTime());
      if (api_.MultiPoll(multi_, nullptr, 0, kPollMs, nullptr) != CURLM_OK) {
        return Status::Internal("curl_multi_poll");
      }
    }
  }

  // Rethrows an exception of `on_body`.
  void Rethrow() const {
    if (exception_ != nullptr) std::rethrow_exception(exception_);
  }

 private:
  template <typename Value>
  void Set(CURLoption option, Value value) {
    const CURLcode code = api_.EasySetopt(easy_, option, value);
    if (code != CURLE_OK && status_.ok()) {
      status_ = Status::Unavailable("libcurl refuses option " + std::to_string(option) + ": " +
                                    api_.EasyStrerror(code));
    }
  }

  Status SetUp() {
    easy_ = api_.EasyInit();
    multi_ = api_.MultiInit();
    if (easy_ == nullptr || multi_ == nullptr) return Status::Unavailable("libcurl: out of memory");
    // Without this, curl waits a second for servers that ignore "Expect".
    for (const char* header : {"Content-Type: application/json", "Expect:"}) AddHeader(header);
    for (const std::string& header : request_.headers) AddHeader(header.c_str());
    Set(CURLOPT_NOSIGNAL, 1L);
    Set(CURLOPT_PROTOCOLS_STR, "http,https");
    Set(CURLOPT_FOLLOWLOCATION, 0L);
    Set(CURLOPT_SSL_VERIFYPEER, 1L);
    Set(CURLOPT_SSL_VERIFYHOST, 2L);
    Set(CURLOPT_NETRC, long{CURL_NETRC_IGNORED});
    Set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);  // a proxy's headers are not part of the answer
    // Requests to this machine do not use a proxy.
    if (request_.endpoint.loopback) Set(CURLOPT_PROXY, "");
    Set(CURLOPT_URL, (request_.endpoint.url + request_.path).c_str());
    Set(CURLOPT_USERAGENT, "cudaforge");
    Set(CURLOPT_HTTPHEADER, headers_);
    Set(CURLOPT_POST, 1L);
    Set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request_.body.size()));
    Set(CURLOPT_POSTFIELDS, request_.body.data());
    Set(CURLOPT_CONNECTTIMEOUT_MS, CurlMs(std::min(limits_.connect_s, limits_.left_s)));
    Set(CURLOPT_ERRORBUFFER, error_);
    Set(CURLOPT_HEADERFUNCTION, &Transfer::OnHeader);
    Set(CURLOPT_HEADERDATA, this);
    Set(CURLOPT_WRITEFUNCTION, &Transfer::OnBody);
    Set(CURLOPT_WRITEDATA, this);
#if LIBCURL_VERSION_NUM >= 0x075700
    // A cancelled name look-up stays in its thread and is not waited for. curl 7.87 and newer.
    api_.EasySetopt(easy_, CURLOPT_QUICK_EXIT, 1L);
#endif
    CF_RETURN_IF_ERROR(status_);
    added_ = api_.MultiAddHandle(multi_, easy_) == CURLM_OK;
    return added_ ? Status::Ok() : Status::Internal("curl_multi_add_handle");
  }

  void AddHeader(const char* header) {
    if (curl_slist* longer = api_.SlistAppend(headers_, header); longer != nullptr) {
      headers_ = longer;
    } else {
      status_ = Status::Unavailable("libcurl: out of memory");
    }
  }

  Status CheckTime() const {
    const SteadyTime now = std::chrono::steady_clock::now();
    const auto since = [now](SteadyTime t) {
      return std::chrono::duration<double>(now - t).count();
    };
    if (since(start_) >= limits_.left_s) {
      return Status::Timeout("the deadline passed" +
                             std::string(has_body_ ? " in the middle of" : " before") +
                             " the answer of " + request_.endpoint.url);
    }
    if (!has_body_ && since(start_) >= limits_.first_byte_s) {
      return Status::Timeout(request_.endpoint.url + " did not begin to answer within " +
                             Seconds(limits_.first_byte_s));
    }
    if (has_body_ && since(last_byte_) >= limits_.idle_s) {
      return Status::Timeout(request_.endpoint.url + " sent no data for " +
                             Seconds(limits_.idle_s) + " in the middle of its answer");
    }
    return Status::Ok();
  }

  Status Outcome() {
    int left = 0;
    const CURLMsg* message = api_.MultiInfoRead(multi_, &left);
    if (message == nullptr) return Status::Internal("curl_multi_info_read");
    const CURLcode code = message->data.result;
    if (code == CURLE_OK) return Status::Ok();
    answer_->connection_fault = answer_->bytes == 0 && MayPass(code);
    error_[CURL_ERROR_SIZE - 1] = '\0';
    return Status::Unavailable(request_.endpoint.url + ": " +
                               (error_[0] != '\0' ? error_ : api_.EasyStrerror(code)));
  }

  // Counts bytes against the limit.
  bool Take(size_t bytes) {
    answer_->bytes += bytes;
    if (answer_->bytes <= limits_.max_bytes) return true;
    status_ = Status::Timeout("the answer of " + request_.endpoint.url + " is over the limit of " +
                              std::to_string(limits_.max_bytes) + " bytes");
    return false;
  }

  void ReadHeader(std::string_view line) {
    while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("HTTP/")) {  // of the final answer, or of an interim one
      answer_->content_type.clear();
      answer_->retry_after.clear();
      const size_t blank = line.find(' ');
      const std::string_view digits =
          blank == std::string_view::npos ? "" : line.substr(blank + 1, 3);
      const std::optional<unsigned> status = ParseInteger<unsigned>(digits);
      answer_->status = digits.size() == 3 && status.has_value() ? static_cast<int>(*status) : 0;
      return;
    }
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return;
    std::string_view value = line.substr(colon + 1);
    while (value.starts_with(' ') || value.starts_with('\t')) value.remove_prefix(1);
    const std::string name = Lower(line.substr(0, colon));
    if (name == "content-type")
      answer_->content_type = Lower(value.substr(0, value.find_first_of("; ")));
    if (name == "retry-after") answer_->retry_after = value;
  }

  // Called by curl with `size` 1. Returning less than `count` ends the transfer.
  static size_t OnHeader(char* bytes, size_t size, size_t count, void* self) {
    auto* transfer = static_cast<Transfer*>(self);
    if (!transfer->Take(size * count)) return 0;
    transfer->ReadHeader({bytes, size * count});
    return size * count;
  }
  static size_t OnBody(char* bytes, size_t size, size_t count, void* self) {
    auto* transfer = static_cast<Transfer*>(self);
    if (!transfer->Take(size * count)) return 0;
    transfer->has_body_ = true;
    transfer->last_byte_ = std::chrono::steady_clock::now();
    try {  // an exception must not pass through curl
      transfer->status_ = transfer->on_body_(*transfer->answer_, {bytes, size * count});
    } catch (...) {
      transfer->exception_ = std::current_exception();
      transfer->status_ = Status::Internal("an exception");
    }
    return transfer->status_.ok() ? size * count : 0;
  }

  const CurlApi& api_;
  const HttpRequest& request_;
  const HttpLimits& limits_;
  const HttpBodySink& on_body_;
  HttpAnswer* answer_;
  CURL* easy_ = nullptr;
  CURLM* multi_ = nullptr;
  curl_slist* headers_ = nullptr;
  bool added_ = false;
  bool has_body_ = false;
  SteadyTime start_, last_byte_;
  Status status_;  // of the callbacks
  std::exception_ptr exception_;
  char error_[CURL_ERROR_SIZE] = {};
};

}  // namespace

Status HttpPost(const HttpRequest& request, const HttpLimits& limits, const Cancel& cancel,
                const HttpBodySink& on_body, HttpAnswer* answer) {
  const Result<CurlApi>& api = CurlApi::Get();
  if (!api.ok()) return api.status();
  *answer = {};
  if (cancel.IsSet()) return Status::Cancelled("cancelled before the request");
  const SigpipeBlock block;  // TLS writes with a plain write(2)
  Transfer transfer(*api, request, limits, on_body, answer);
  const Status status = transfer.Run(cancel);
  transfer.Rethrow();
  return status;
}

}  // namespace cudaforge
