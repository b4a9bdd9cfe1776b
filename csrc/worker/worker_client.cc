#include "worker/worker_client.h"

#include <poll.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <map>
#include <optional>
#include <random>

#include "base/file.h"
#include "worker/protocol.h"

namespace cudaforge {
namespace {

constexpr int kHelloTimeoutMs = 120'000;  // a first CUDA context can take long
constexpr int kCompileGraceMs = 5'000;    // the worker's own limit comes first
constexpr int kLastWordsMs = 2'000;       // for a worker that hung up to be reaped
constexpr int kSendTimeoutMs = 30'000;
constexpr int kProfileGraceMs = 20'000;   // setting up the counters; a pass is as short as a run
constexpr int kFactsTimeoutMs = 120'000;  // compiles and measures
constexpr double kEndless = 1e18;         // JSON has no infinity

Verdict MakeVerdict(VerdictKind kind, std::string message) {
  return {kind, std::move(message), Json::object()};
}

// Of a reply without "ok": true.
Status ErrorOf(const Frame& frame) {
  const auto error = JsonString(frame.body, "error");
  const std::string text = error.ok() ? *error : "the worker gave no reason";
  const auto internal = JsonBool(frame.body, "internal");
  if (internal.ok() && *internal) return Status::Internal(text);
  return Status::Unavailable(text);
}

}  // namespace

class WorkerClient::Impl {
 public:
  explicit Impl(WorkerOptions options) : options_(std::move(options)) {}

  // What became of a request. A timeout or an end leaves no worker behind.
  struct Answer {
    enum class Kind { kReply, kTimedOut, kEnded } kind = Kind::kReply;
    Frame frame;      // kReply: "ok" is a boolean
    std::string end;  // kEnded: how the worker ended, or what was wrong with its reply
    int signal = 0;   // kEnded: the one that ended it, else 0
  };

  // An error when no worker can be started. `timeout_ms` counts from the start of the request.
  Result<Answer> Ask(Frame& request, int timeout_ms) {
    CF_RETURN_IF_ERROR(EnsureWorker());
    return Exchange(request, timeout_ms);
  }

  // The object `field` of the reply to a request.
  Result<Json> AskFor(const char* field, Frame& request, int timeout_ms) {
    CF_ASSIGN_OR_RETURN(const Answer answer, Ask(request, timeout_ms));
    const std::string what = std::string("the worker's ") + field;
    if (answer.kind == Answer::Kind::kTimedOut) return Status::Timeout(what + " took too long");
    if (answer.kind == Answer::Kind::kEnded) {
      return Status::Unavailable("the process that was asked for its " + std::string(field) +
                                 " ended: " + answer.end);
    }
    if (answer.frame.body["ok"] != true) return ErrorOf(answer.frame);
    CF_ASSIGN_OR_RETURN(Json found, JsonField(answer.frame.body, field));
    if (!found.is_object()) return Status::Corruption(what + ": expected an object");
    return found;
  }

  const WorkerOptions& options() const { return options_; }
  void Limit(int compile_ms, int run_ms, const Cancel* cancel) {
    options_.compile_timeout_ms = compile_ms;
    options_.run_timeout_ms = run_ms;
    options_.cancel = cancel;
  }
  int started() const { return started_; }
  const ProcessEnd& last_end() const { return last_end_; }
  // A memory file of the set's bytes, one input after the other. The last set with an id stays
  // written: a search runs every candidate on one and the same.
  Result<UniqueFd> InputFile(const InputSet& inputs) {
    if (inputs.id != 0 && inputs.id == kept_id_) return Duplicate(kept_);
    const std::vector<std::string_view> parts(inputs.bytes.begin(), inputs.bytes.end());
    CF_ASSIGN_OR_RETURN(UniqueFd file, MakeMemFile(parts));
    if (inputs.id == 0) return file;
    CF_ASSIGN_OR_RETURN(UniqueFd copy, Duplicate(file));
    kept_ = std::move(file);
    kept_id_ = inputs.id;
    return copy;
  }
  // Null until the first answer.
  Json facts;
  uint64_t RandomSeed() { return (uint64_t{entropy_()} << 31) ^ entropy_(); }

 private:
  // A worker that died between two requests (its starting thread ended, someone killed it) must not
  // be held against the next candidate.
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

  Status EnsureWorker() {
    if (Alive()) return Status::Ok();
    if (child_.has_value()) End(0);
    // What the worker and its compilers leave behind when they are killed goes with this folder.
    // Without one (no space, no right) the compiler says what is wrong; NVRTC needs none.
    std::map<std::string, std::string> environment;
    if (Result<TempDir> scratch = TempDir::Create("cudaforge-worker-"); scratch.ok()) {
      scratch_.emplace(*std::move(scratch));
      environment["TMPDIR"] = scratch_->path();
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
    CF_ASSIGN_OR_RETURN(const Answer answer, Exchange(hello, kHelloTimeoutMs));
    if (answer.kind == Answer::Kind::kTimedOut) {
      return Status::Unavailable("the worker did not come up in time");
    }
    if (answer.kind == Answer::Kind::kEnded) {
      return Status::Unavailable("the worker " + options_.executable +
                                 " did not come up: " + answer.end);
    }
    const auto protocol = JsonInt(answer.frame.body, "protocol");
    if (answer.frame.body["ok"] == true && protocol.ok() && *protocol == kWorkerProtocol) {
      return Status::Ok();
    }
    const auto error = JsonString(answer.frame.body, "error");
    End(0);
    return Status::Unavailable("the worker cannot serve: " +
                               (error.ok() ? *error : std::string("another protocol")));
  }

  // Waits until the worker says something or *timeout_ms is over, and takes the time waited off it.
  // True: cancelled before.
  bool CancelledWhileWaiting(int* timeout_ms) const {
    constexpr int kSliceMs = 100;
    if (options_.cancel == nullptr) return false;
    while (!options_.cancel->IsSet()) {
      const int slice = std::min(*timeout_ms, kSliceMs);
      pollfd entry{child_->socket(), POLLIN, 0};
      if (slice <= 0 || poll(&entry, 1, slice) > 0) return false;  // else a signal may have come
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
    // The echoed id keeps a reply that a candidate forged, or the real one after it, from being
    // taken for another.
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
      // Whatever a candidate did to the worker's memory, its next words are not to be trusted.
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
  UniqueFd kept_;
  uint64_t kept_id_ = 0;
};

namespace {

// The request that "run", "time" and "profile" share: candidate, signature, inputs.
Result<Frame> Pack(const char* command, const std::string& binary, const Candidate& candidate,
                   const OpSignature& signature, const InputSet& inputs, UniqueFd data) {
  if (inputs.bytes.size() != signature.inputs.size()) {
    return Status::InvalidArgument("an input set of another signature");
  }
  Frame packed;
  Json places = Json::array();
  int64_t at = 0;
  for (size_t i = 0; i < inputs.bytes.size(); ++i) {
    const auto bytes = static_cast<int64_t>(inputs.bytes[i].size());
    if (bytes != signature.inputs[i].StorageBytes()) {
      return Status::InvalidArgument("an input set of another signature");
    }
    places.push_back({{"at", at}, {"shift", i < inputs.offsets.size() ? inputs.offsets[i] : 0}});
    at += bytes;
  }
  packed.body = {{"command", command},
                 {"candidate", candidate.ToJson()},
                 {"signature", signature.ToJson()},
                 {"inputs", places}};
  CF_ASSIGN_OR_RETURN(UniqueFd code, MakeMemFile(std::string_view(binary)));
  packed.fds.push_back(std::move(code));
  packed.fds.push_back(std::move(data));
  return packed;
}

// Whether a worker ended by SIGKILL: when memory runs out, the system does that to a worker that
// did nothing wrong.
bool IsKilled(int signal) { return signal == SIGKILL; }

// Whether it read or wrote where it may not.
bool IsStray(int signal) { return signal == SIGSEGV || signal == SIGBUS; }

}  // namespace

WorkerClient::WorkerClient(WorkerOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
WorkerClient::~WorkerClient() = default;
void WorkerClient::Limit(int compile_ms, int run_ms, const Cancel* cancel) {
  impl_->Limit(compile_ms, run_ms, cancel);
}

int WorkerClient::started() const { return impl_->started(); }
ProcessEnd WorkerClient::last_end() const { return impl_->last_end(); }

Result<CompileResult> WorkerClient::Compile(const Candidate& candidate) {
  const int timeout_ms = impl_->options().compile_timeout_ms;
  Frame request;
  request.body = {
      {"command", "compile"},
      {"source",
       {{"language", LanguageName(candidate.source.language)}, {"code", candidate.source.code}}},
      {"timeout_ms", timeout_ms}};
  CF_ASSIGN_OR_RETURN(Impl::Answer answer, impl_->Ask(request, timeout_ms + kCompileGraceMs));
  if (answer.kind == Impl::Answer::Kind::kEnded) {  // perhaps by somebody's hand: see IsKilled
    CF_ASSIGN_OR_RETURN(answer, impl_->Ask(request, timeout_ms + kCompileGraceMs));
  }
  CompileResult result;
  if (answer.kind == Impl::Answer::Kind::kTimedOut) {
    result.log = "the compiler did not finish within " + std::to_string(timeout_ms) + " ms";
    return result;
  }
  if (answer.kind == Impl::Answer::Kind::kEnded) {
    const std::string words = "the compiling process ended twice: " + answer.end;
    // NVRTC and nvJitLink work inside the worker and may crash on a source; a host compiler is a
    // process of its own.
    if (candidate.source.language == Language::kCpu || IsKilled(answer.signal)) {
      return Status::Unavailable(words);
    }
    result.log = words;
    return result;
  }
  if (answer.frame.body["ok"] != true) return ErrorOf(answer.frame);
  CF_ASSIGN_OR_RETURN(result.ok, JsonBool(answer.frame.body, "compiled"));
  CF_ASSIGN_OR_RETURN(result.log, JsonString(answer.frame.body, "log"));
  CF_ASSIGN_OR_RETURN(result.resources, JsonField(answer.frame.body, "resources"));
  if (result.ok) {
    if (answer.frame.fds.size() != 1) return Status::Corruption("the worker sent no binary");
    CF_ASSIGN_OR_RETURN(result.binary, ReadMemFile(answer.frame.fds[0].get(), kMaxBinaryBytes));
  }
  return result;
}

Result<RunOutput> WorkerClient::Run(const std::string& binary, const Candidate& candidate,
                                    const OpSignature& signature, const InputSet& inputs,
                                    const RunPlan& plan) {
  auto out = RunOnce(binary, candidate, signature, inputs, plan);
  if (!out.ok() || out->verdict.kind != VerdictKind::kCrashed || !IsKilled(last_end().signal))
    return out;
  return RunOnce(binary, candidate, signature, inputs, plan);
}

Result<RunOutput> WorkerClient::RunOnce(const std::string& binary, const Candidate& candidate,
                                        const OpSignature& signature, const InputSet& inputs,
                                        const RunPlan& plan) {
  RunOutput out;
  const Status legal = candidate.Validate(signature);
  if (!legal.ok()) {
    out.verdict = MakeVerdict(VerdictKind::kRefused, legal.message());
    return out;
  }
  CF_ASSIGN_OR_RETURN(UniqueFd data, impl_->InputFile(inputs));
  CF_ASSIGN_OR_RETURN(Frame packed,
                      Pack("run", binary, candidate, signature, inputs, std::move(data)));
  packed.body["poison"] = plan.poison;
  packed.body["fence"] = static_cast<int>(plan.fence);
  packed.body["again"] = plan.again;
  packed.body["new_thread"] = plan.new_thread;
  packed.body["guard_seed"] = static_cast<int64_t>(impl_->RandomSeed() >> 1);
  Json places = Json::array();
  int64_t total = 0;
  for (size_t o = 0; o < signature.outputs.size(); ++o) {
    places.push_back({{"at", total}});
    total += signature.output_spec(o).StorageBytes();
  }
  packed.body["outputs"] = places;
  CF_ASSIGN_OR_RETURN(UniqueFd results, MakeMemFile(total));
  const int results_fd = results.get();
  packed.fds.push_back(std::move(results));

  const int timeout_ms = impl_->options().run_timeout_ms;
  CF_ASSIGN_OR_RETURN(const Impl::Answer answer, impl_->Ask(packed, timeout_ms));
  if (answer.kind == Impl::Answer::Kind::kTimedOut) {
    out.verdict = MakeVerdict(VerdictKind::kTimeout,
                              "did not finish within " + std::to_string(timeout_ms) + " ms");
    return out;
  }
  if (answer.kind == Impl::Answer::Kind::kEnded) {
    if (plan.fence != RunPlan::Fence::kNone && IsStray(answer.signal)) {
      const bool before = plan.fence == RunPlan::Fence::kBefore;
      out.verdict = MakeVerdict(
          VerdictKind::kMemoryFault,
          std::string("read or wrote outside a buffer: right ") + (before ? "before" : "after") +
              " each lay memory that may not be touched (" + answer.end + ")");
      return out;
    }
    out.verdict = MakeVerdict(VerdictKind::kCrashed,
                              "the process that ran it ended before it answered: " + answer.end);
    return out;
  }
  if (answer.frame.body["ok"] != true) return ErrorOf(answer.frame);
  const auto field = JsonField(answer.frame.body, "verdict");
  auto verdict = field.ok() ? Verdict::FromJson(*field) : Result<Verdict>(field.status());
  if (!verdict.ok()) {
    out.verdict = MakeVerdict(VerdictKind::kCrashed,
                              "the worker's verdict cannot be read: " + verdict.status().message());
    return out;
  }
  out.verdict = std::move(*verdict);
  if (!out.verdict.accepted()) return out;
  int64_t at = 0;
  for (size_t o = 0; o < signature.outputs.size(); ++o) {
    std::string bytes(static_cast<size_t>(signature.output_spec(o).StorageBytes()), '\0');
    CF_RETURN_IF_ERROR(
        ReadMemFileAt(results_fd, at, bytes.data(), static_cast<int64_t>(bytes.size())));
    at += static_cast<int64_t>(bytes.size());
    out.outputs.push_back(std::move(bytes));
  }
  return out;
}

Result<double> WorkerClient::Time(const std::string& binary, const Candidate& candidate,
                                  const OpSignature& signature, const InputSet& inputs,
                                  const TimingPlan& plan) {
  CF_RETURN_IF_ERROR(candidate.Validate(signature));
  CF_ASSIGN_OR_RETURN(UniqueFd data, impl_->InputFile(inputs));
  CF_ASSIGN_OR_RETURN(Frame packed,
                      Pack("time", binary, candidate, signature, inputs, std::move(data)));
  packed.body["samples"] = plan.samples;
  packed.body["least"] = std::min(plan.least, plan.samples);
  packed.body["total_ns"] = std::min(plan.total_ns, kEndless);
  packed.body["abandon_ns"] = std::min(plan.abandon_ns, kEndless);
  CF_ASSIGN_OR_RETURN(const Impl::Answer answer,
                      impl_->Ask(packed, impl_->options().run_timeout_ms));
  if (answer.kind == Impl::Answer::Kind::kTimedOut) return Status::Timeout("timing took too long");
  if (answer.kind == Impl::Answer::Kind::kEnded) {
    return Status::Unavailable("the process that timed it ended: " + answer.end);
  }
  if (answer.frame.body["ok"] != true) return ErrorOf(answer.frame);
  CF_ASSIGN_OR_RETURN(const double nanoseconds, JsonDouble(answer.frame.body, "nanoseconds"));
  if (!std::isfinite(nanoseconds) || nanoseconds < 0) {
    return Status::Corruption("the worker reports a time that is none");
  }
  return nanoseconds;
}

Result<Json> WorkerClient::Profile(const std::string& binary, const Candidate& candidate,
                                   const OpSignature& signature, const InputSet& inputs, int tier) {
  CF_RETURN_IF_ERROR(candidate.Validate(signature));
  CF_ASSIGN_OR_RETURN(UniqueFd data, impl_->InputFile(inputs));
  CF_ASSIGN_OR_RETURN(Frame packed,
                      Pack("profile", binary, candidate, signature, inputs, std::move(data)));
  packed.body["tier"] = tier;
  return impl_->AskFor("profile", packed, impl_->options().run_timeout_ms + kProfileGraceMs);
}

Result<Json> WorkerClient::Facts() {
  if (!impl_->facts.is_null()) return impl_->facts;
  Frame request;
  request.body = {{"command", "facts"}};
  CF_ASSIGN_OR_RETURN(impl_->facts, impl_->AskFor("facts", request, kFactsTimeoutMs));
  return impl_->facts;
}

Result<Json> CandidateRunner::Profile(const std::string&, const Candidate&, const OpSignature&,
                                      const InputSet&, int) {
  return Status::Unsupported("this runner profiles nothing");
}

Result<Json> CandidateRunner::Facts() {
  return Status::Unsupported("this runner does not know the device");
}

}  // namespace cudaforge
