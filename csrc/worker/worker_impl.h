// Common code of WorkerClient's files: the current worker, and an exchange with it.
#pragma once

#include <poll.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>

#include "base/file.h"
#include "worker/protocol.h"
#include "worker/worker_client.h"

namespace cudaforge {

inline constexpr int kHelloTimeoutMs = 120'000;  // a first CUDA context can take long
inline constexpr int kLastWordsMs = 2'000;       // for a worker that closed its socket to exit
inline constexpr int kSendTimeoutMs = 30'000;
inline constexpr int kProfileGraceMs = 20'000;  // for setting up the counters; a pass is a run

inline Verdict MakeVerdict(VerdictKind kind, std::string message) {
  return {kind, std::move(message), Json::object()};
}

// The error of a reply without "ok": true.
inline Status ErrorOf(const Frame& frame) {
  const auto error = JsonString(frame.body, "error");
  const std::string text = error.ok() ? *error : "the worker gave no reason";
  const auto internal = JsonBool(frame.body, "internal");
  if (internal.ok() && *internal) return Status::Internal(text);
  return Status::Unavailable(text);
}

class WorkerClient::Impl {
 public:
  explicit Impl(WorkerOptions options) : options_(std::move(options)) {}

  // The result of a request. After a timeout or an end there is no worker.
  struct Answer {
    enum class Kind { kReply, kTimedOut, kEnded } kind = Kind::kReply;
    Frame frame;      // kReply: "ok" is a boolean
    std::string end;  // kEnded: how the worker ended, or what is wrong with its reply
    int signal = 0;   // kEnded: the signal that ended it, else 0
  };

  // Sends a request. An error: no worker can be started. `timeout_ms` counts from the start of the
  // request.
  Result<Answer> Ask(Frame& request, int timeout_ms) {
    CF_RETURN_IF_ERROR(EnsureWorker());
    return Exchange(request, timeout_ms);
  }

  // Returns the object `field` of the reply.
  Result<Json> AskFor(const char* field, Frame& request, int timeout_ms) {
    CF_ASSIGN_OR_RETURN(const Answer answer, Ask(request, timeout_ms));
    const std::string what = std::string("the worker's ") + field;
    if (answer.kind == Answer::Kind::kTimedOut) return Status::Timeout(what + " took too long");
    if (answer.kind == Answer::Kind::kEnded) {
      return Status::Unavailable("the process ended before it reported its " + std::string(field) +
                                 ": " + answer.end);
    }
    if (answer.frame.body["ok"] != true) return ErrorOf(answer.frame);
    CF_ASSIGN_OR_RETURN(Json found, JsonField(answer.frame.body, field));
    if (!found.is_object()) return Status::Corruption(what + ": expected an object");
    return found;
  }

  // Starts a worker if there is none.
  Status EnsureWorker() {
    if (Alive()) return Status::Ok();
    if (child_.has_value()) End(0);
    // Removing this folder cleans up after killed workers and compilers. If it cannot be made (no
    // space, no permission), the compiler reports that; NVRTC does not need it.
    std::map<std::string, std::string> environment;
    if (!options_.compiles_for.starts_with("cuda:")) {
      Result<TempDir> scratch = TempDir::Create("cudaforge-worker-");
      if (scratch.ok()) {
        scratch_.emplace(*std::move(scratch));
        environment["TMPDIR"] = scratch_->path();
      }
    }
    auto child = ChildProcess::Start({options_.executable}, environment);
    if (!child.ok()) return child.status();
    child_.emplace(std::move(*child));
    ++started_;
    Frame hello;
    hello.body = {{"command", "hello"},
                  {"protocol", kWorkerProtocol},
                  {"device", DeviceTypeName(options_.device)},
                  {"device_index", options_.device_index},
                  {"cxx", options_.cxx},
                  {"cuda_search_paths", options_.cuda_search_paths}};
    if (!options_.compiles_for.empty()) hello.body["compiles_for"] = options_.compiles_for;
    CF_ASSIGN_OR_RETURN(const Answer answer, Exchange(hello, kHelloTimeoutMs));
    if (answer.kind == Answer::Kind::kTimedOut) {
      return Status::Unavailable("the worker did not start in time");
    }
    if (answer.kind == Answer::Kind::kEnded) {
      return Status::Unavailable("the worker " + options_.executable +
                                 " did not start: " + answer.end);
    }
    const auto protocol = JsonInt(answer.frame.body, "protocol");
    if (answer.frame.body["ok"] == true && protocol.ok() && *protocol == kWorkerProtocol) {
      return Status::Ok();
    }
    const auto error = JsonString(answer.frame.body, "error");
    const std::string why =
        "the worker cannot serve: " + (error.ok() ? *error : std::string("another protocol"));
    const auto code = JsonString(answer.frame.body, "code");
    End(0);
    if (code.ok() && ParseStatusCode(*code) == StatusCode::kNoMemory) return Status::NoMemory(why);
    return Status::Unavailable(why);
  }

  const WorkerOptions& options() const { return options_; }
  void Limit(int compile_ms, int run_ms, const Cancel* cancel) {
    options_.compile_timeout_ms = compile_ms;
    options_.run_timeout_ms = run_ms;
    options_.cancel = cancel;
  }
  int started() const { return started_; }
  // Null until the first answer.
  Json facts;
  uint64_t RandomSeed() { return (uint64_t{entropy_()} << 31) ^ entropy_(); }

  // Mappings and kernel of this client, to restore in a new worker.
  struct KeptMapping {
    UniqueFd memory;
    int64_t bytes = 0;
    bool writable = false;
    int64_t shift = 0;
  };
  struct KeptKernel {
    UniqueFd binary;
    Json candidate, signature;
  };
  std::map<int, KeptMapping> mappings;
  std::optional<KeptKernel> kernel;
  int next_mapping = 1;

  // As Ask, with `mappings` and `kernel` restored.
  Result<Answer> AskLaunch(Frame& request, int timeout_ms);
  // Returns true if the current worker has them.
  bool Holds() const { return Alive() && holder_ == started_; }
  // Frames for a mapping and a kernel.
  static Result<Frame> MapRequest(int id, const KeptMapping& mapping);
  Result<Frame> LoadRequest(const KeptKernel& loaded) const;
  // How long to wait for an answer to a request on mapped memory.
  int PatienceMs() const;

 private:
  // Returns false if the worker died between two requests (its starting thread ended, or it was
  // killed). The next candidate must not be blamed for that.
  bool Alive() const {
    if (!child_.has_value()) return false;
    pollfd entry{child_->socket(), POLLIN, 0};
    return poll(&entry, 1, 0) == 0;
  }

  void End(int wait_ms) {
    last_end_ = child_->WaitOrKill(wait_ms);
    child_.reset();
    scratch_.reset();
  }

  // Waits for data from the worker, and subtracts the time from *timeout_ms. Returns true if
  // cancelled before.
  bool CancelledWhileWaiting(int* timeout_ms) const {
    constexpr int kSliceMs = 100;
    if (options_.cancel == nullptr) return false;
    while (!options_.cancel->IsSet()) {
      const int slice = std::min(*timeout_ms, kSliceMs);
      pollfd entry{child_->socket(), POLLIN, 0};
      // else possibly interrupted by a signal
      if (slice <= 0 || poll(&entry, 1, slice) > 0) return false;
      *timeout_ms -= slice;
    }
    return true;
  }

  Result<Answer> Exchange(Frame& request, int timeout_ms) {
    Answer answer;
    const auto id = static_cast<int64_t>(RandomSeed() >> 1);
    request.body["id"] = id;
    const Status sent = SendFrame(child_->socket(), request, kSendTimeoutMs);
    if (sent.code() == StatusCode::kInvalidArgument) return sent;
    if (sent.ok() && CancelledWhileWaiting(&timeout_ms)) {
      End(0);
      return Status::Cancelled("the worker was stopped");
    }
    auto reply = sent.ok() ? ReceiveFrame(child_->socket(), timeout_ms) : Result<Frame>(sent);
    // The echoed id detects a reply that a candidate forged, or a late one.
    const auto echoed = reply.ok() ? JsonInt(reply->body, "id") : Result<int64_t>(reply.status());
    if (echoed.ok() && *echoed == id && JsonBool(reply->body, "ok").ok()) {
      answer.frame = std::move(*reply);
      const auto fatal = JsonBool(answer.frame.body, "fatal");
      if (fatal.ok() && *fatal) End(kLastWordsMs);
      return answer;
    }
    if (!reply.ok() && reply.status().code() == StatusCode::kTimeout) {
      answer.kind = Answer::Kind::kTimedOut;
      End(0);
      return answer;
    }
    answer.kind = Answer::Kind::kEnded;
    if (!reply.ok() && reply.status().code() == StatusCode::kIoError) {
      End(kLastWordsMs);
      answer.end = last_end_.ToString();
      answer.signal = last_end_.signal;
    } else {
      // A candidate may have changed the worker's memory, so its further messages are not trusted.
      End(0);
      answer.end = "a reply that breaks the protocol" +
                   (reply.ok() ? std::string() : " (" + reply.status().message() + ")");
    }
    return answer;
  }

  WorkerOptions options_;
  std::optional<TempDir> scratch_;  // outlives the child
  std::optional<ChildProcess> child_;
  std::random_device entropy_;
  int started_ = 0;
  ProcessEnd last_end_;
  int holder_ = 0;  // the number (see started_) of the worker that has `mappings` and `kernel`
};

}  // namespace cudaforge
