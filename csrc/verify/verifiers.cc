#include "verify/verifiers.h"

#include <poll.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <utility>

#include "base/subprocess.h"
#include "verify/messages.h"

namespace cudaforge {
namespace {

constexpr int kSendTimeoutMs = 30'000;
constexpr int kSliceMs = 100;
constexpr int kLastWordsMs = 2'000;  // for a process that hung up to be reaped
constexpr size_t kMaxWaiting = 4;

}  // namespace

// One verifier process. Not thread-safe.
class Verifiers::Process {
 public:
  Process(ChildProcess child, DeviceType device, int device_index)
      : child_(std::move(child)), device_(device), device_index_(device_index) {}

  bool IsFor(DeviceType device, int device_index) const {
    return device == device_ && device_index == device_index_;
  }
  bool alive() const { return alive_; }

  // Sends without waiting for the reply, which Receive gives.
  Status Send(Json body) {
    Frame frame;
    frame.body = std::move(body);
    ++owed_;
    const Status sent = SendFrame(child_.socket(), frame, kSendTimeoutMs);
    if (!sent.ok()) return Ended(sent);
    return Status::Ok();
  }

  // The next reply with "ok": true; an error that the verifier gave, or kUnavailable where it
  // ended, or kCancelled, after which it is killed.
  Result<Frame> Receive(const Cancel* cancel) {
    pollfd entry{child_.socket(), POLLIN, 0};
    while (cancel != nullptr && poll(&entry, 1, kSliceMs) <= 0) {  // or a signal came
      if (!cancel->IsSet()) continue;
      alive_ = false;
      child_.Kill();
      return Status::Cancelled("the verifier was stopped");
    }
    --owed_;
    Result<Frame> frame = ReceiveFrame(child_.socket(), -1);
    if (!frame.ok()) return Ended(frame.status());
    if (frame->body.contains("fatal")) alive_ = false;
    if (MemberOrNull(frame->body, "ok") != true) return ErrorIn(frame->body);
    return frame;
  }

  Result<Frame> Ask(Json body, const Cancel* cancel) {
    CF_RETURN_IF_ERROR(Send(std::move(body)));
    while (owed_ > 1) CF_RETURN_IF_ERROR(Receive(cancel).status());  // of what was sent before
    return Receive(cancel);
  }

  // Whether it waits for a request: it neither ended nor has anything to say.
  bool Idle() const {
    pollfd entry{child_.socket(), static_cast<short>(owed_ > 0 ? POLLRDHUP : POLLIN), 0};
    return alive_ && poll(&entry, 1, 0) == 0;
  }

 private:
  Status Ended(const Status& why) {
    alive_ = false;
    const ProcessEnd end = child_.WaitOrKill(kLastWordsMs);
    if (why.code() != StatusCode::kIoError) return why;
    return Status::Unavailable("the verifier ended: " + end.ToString());
  }

  ChildProcess child_;
  const DeviceType device_;
  const int device_index_;
  int owed_ = 0;  // replies that were not received yet
  bool alive_ = true;
};

// A region that is open in a process.
class RemoteEvaluator : public Evaluator {
 public:
  RemoteEvaluator(Verifiers& verifiers, std::unique_ptr<Verifiers::Process> process)
      : verifiers_(verifiers), process_(std::move(process)) {}
  ~RemoteEvaluator() override {
    if (!under_way_.empty() || !process_->alive()) return;
    if (!process_->Ask({{"command", "close"}}, nullptr).ok()) return;  // waits for its memory
    verifiers_.GiveBack(std::move(process_));
  }

  void Begin(const EvaluatorSettings& settings) override {
    CF_CHECK(under_way_.empty());
    cancel_ = settings.cancel;
    begun_ = Ask({{"command", "begin"},
                  {"compile_timeout_ms", settings.compile_timeout_ms},
                  {"run_timeout_ms", settings.run_timeout_ms},
                  {"metrics", settings.metrics}})
                 .status();
  }

  int slots() const override { return slots_; }

  void Submit(EvaluationRequest request) override {
    under_way_.push_back({request.id, request.candidate, begun_});
    Status& sent = under_way_.back().sent;
    if (sent.ok()) sent = Send({{"command", "submit"}, {"request", RequestToJson(request)}});
  }

  Evaluated Wait() override {
    CF_CHECK(!under_way_.empty()) << "nothing is under way";
    const Open open = std::move(under_way_.front());
    under_way_.pop_front();
    return {open.id, Receive(open)};
  }

  double proof_seconds() const override { return proof_seconds_; }
  PhaseSeconds spent() const override { return spent_; }

  // Of the reply to "open".
  Status Opened(const Json& reply) {
    CF_ASSIGN_OR_RETURN(const int64_t slots, JsonInt(reply, "slots"));
    slots_ = static_cast<int>(slots);
    CF_ASSIGN_OR_RETURN(spent_, SpentFromJson(MemberOrNull(reply, "spent")));
    return Status::Ok();
  }

  Json facts() override {
    if (!facts_.has_value()) {
      const Result<Frame> reply = Ask({{"command", "facts"}});
      facts_ = reply.ok() ? MemberOrNull(reply->body, "facts") : Json::object();
    }
    return *facts_;
  }

 private:
  struct Open {
    int id;
    Candidate candidate;
    Status sent;
  };

  static Status Gone() { return Status::Unavailable("the verifier has ended"); }
  Status Send(Json body) { return process_->alive() ? process_->Send(std::move(body)) : Gone(); }
  Result<Frame> Ask(Json body) {
    if (!process_->alive()) return Gone();
    return process_->Ask(std::move(body), cancel_);
  }

  Result<Evaluation> Receive(const Open& open) {
    CF_RETURN_IF_ERROR(open.sent);
    CF_ASSIGN_OR_RETURN(const Frame reply, Ask({{"command", "wait"}}));
    CF_ASSIGN_OR_RETURN(proof_seconds_, JsonDouble(reply.body, "proof_seconds"));
    CF_ASSIGN_OR_RETURN(spent_, SpentFromJson(MemberOrNull(reply.body, "spent")));
    if (reply.body.contains("error")) return ErrorIn(reply.body);
    std::string binary;
    if (!reply.fds.empty()) {
      CF_ASSIGN_OR_RETURN(binary, ReadMemFile(reply.fds[0].get(), kMaxBinaryBytes));
    }
    return EvaluationFromJson(MemberOrNull(reply.body, "evaluation"), open.candidate,
                              std::move(binary));
  }

  Verifiers& verifiers_;
  std::unique_ptr<Verifiers::Process> process_;
  const Cancel* cancel_ = nullptr;
  Status begun_;
  std::deque<Open> under_way_;  // oldest first
  int slots_ = 1;
  double proof_seconds_ = 0;
  PhaseSeconds spent_;
  std::optional<Json> facts_;
};

Verifiers::Verifiers(VerifierOptions options) : options_(std::move(options)) {}
Verifiers::~Verifiers() = default;

Result<std::unique_ptr<Verifiers::Process>> Verifiers::Start(DeviceType device,
                                                             int device_index) const {
  std::map<std::string, std::string> environment;
  if (!options_.library_path.empty()) {
    const char* set = std::getenv("LD_LIBRARY_PATH");
    environment["LD_LIBRARY_PATH"] =
        options_.library_path + (set != nullptr && *set != '\0' ? ":" + std::string(set) : "");
  }
  CF_ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::Start({options_.executable}, environment));
  auto process = std::make_unique<Process>(std::move(child), device, device_index);
  CF_RETURN_IF_ERROR(process->Send({{"command", "hello"},
                                    {"protocol", kVerifierProtocol},
                                    {"device", DeviceTypeName(device)},
                                    {"device_index", device_index},
                                    {"worker", options_.worker},
                                    {"cxx", options_.cxx},
                                    {"cuda_search_paths", options_.cuda_search_paths}}));
  return process;
}

Result<std::unique_ptr<Verifiers::Process>> Verifiers::Take(DeviceType device, int device_index) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(waiting_, [](const auto& process) { return !process->Idle(); });
    const auto found = std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& process) {
      return process->IsFor(device, device_index);
    });
    if (found != waiting_.end()) {
      std::unique_ptr<Process> process = std::move(*found);
      waiting_.erase(found);
      return process;
    }
  }
  return Start(device, device_index);
}

void Verifiers::GiveBack(std::unique_ptr<Process> process) {
  if (!process->Idle()) return;
  const std::lock_guard lock(mutex_);
  waiting_.push_front(std::move(process));
  if (waiting_.size() > kMaxWaiting) waiting_.pop_back();
}

bool Verifiers::Waits(DeviceType device, int device_index) {
  const std::lock_guard lock(mutex_);
  return std::any_of(waiting_.begin(), waiting_.end(), [&](const auto& process) {
    return process->IsFor(device, device_index) && process->Idle();
  });
}

void Verifiers::EndWaiting() {
  std::list<std::unique_ptr<Process>> ending;  // which takes time
  const std::lock_guard lock(mutex_);
  ending.swap(waiting_);
}

void Verifiers::Prepare(DeviceType device, int device_index) {
  Result<std::unique_ptr<Process>> process = Take(device, device_index);
  if (process.ok()) GiveBack(*std::move(process));
}

Result<std::unique_ptr<Evaluator>> Verifiers::Open(const OpSignature& region, int device_index,
                                                   double seconds, const Cancel* cancel) {
  CF_ASSIGN_OR_RETURN(std::unique_ptr<Process> process, Take(region.device, device_index));
  Json body = {{"command", "open"}, {"region", region.ToJson()}};
  if (std::isfinite(seconds)) body["seconds"] = seconds;
  const Result<Frame> reply = process->Ask(std::move(body), cancel);
  auto evaluator = std::make_unique<RemoteEvaluator>(*this, std::move(process));
  CF_RETURN_IF_ERROR(reply.status());
  CF_RETURN_IF_ERROR(evaluator->Opened(reply->body));
  return std::unique_ptr<Evaluator>(std::move(evaluator));
}

}  // namespace cudaforge
