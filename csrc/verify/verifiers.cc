#include "verify/verifiers.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/subprocess.h"
#include "target/cpu/cpu_info.h"
#include "verify/messages.h"

namespace cudaforge {
namespace {

constexpr int kSendTimeoutMs = 30'000;
constexpr int kSliceMs = 100;
constexpr int kLastWordsMs = 2'000;  // for a process that closed its socket to exit
constexpr size_t kMaxWaiting = 4;

Frame Command(const char* command, Json body = Json::object()) {
  Frame frame;
  frame.body = std::move(body);
  frame.body["command"] = command;
  return frame;
}

}  // namespace

// One verifier process. Not thread-safe.
class Verifiers::Process {
 public:
  Process(ChildProcess child, DeviceType device, int device_index)
      : child_(std::move(child)), device_(device), device_index_(device_index) {}
  ~Process() { End(); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  bool IsFor(DeviceType device, int device_index) const {
    return device == device_ && device_index == device_index_;
  }
  bool alive() const { return alive_; }

  // Sends without waiting for the reply; see Receive.
  Status Send(const Frame& frame) {
    ++owed_;
    const Status sent = SendFrame(child_.socket(), frame, kSendTimeoutMs);
    if (!sent.ok()) return Ended(sent);
    return Status::Ok();
  }

  // Returns the next reply with "ok": true. Errors: the verifier's; kUnavailable: it exited;
  // kCancelled: it was killed.
  Result<Frame> Receive(const Cancel* cancel) {
    pollfd entry{child_.socket(), POLLIN, 0};
    while (cancel != nullptr && poll(&entry, 1, kSliceMs) <= 0) {  // or a signal arrived
      if (!cancel->IsSet()) continue;
      End();
      return Status::Cancelled("the verifier was stopped");
    }
    --owed_;
    Result<Frame> frame = ReceiveFrame(child_.socket(), -1);
    if (!frame.ok()) return Ended(frame.status());
    if (frame->body.contains("fatal")) alive_ = false;
    if (MemberOrNull(frame->body, "ok") != true) return ErrorIn(frame->body);
    return frame;
  }

  Result<Frame> Ask(const Frame& request, const Cancel* cancel) {
    CF_RETURN_IF_ERROR(Send(request));
    while (owed_ > 1) CF_RETURN_IF_ERROR(Receive(cancel).status());  // to earlier requests
    return Receive(cancel);
  }

  // Returns true if it is idle: running, without unread messages.
  bool Idle() const {
    pollfd entry{child_.socket(), static_cast<short>(owed_ > 0 ? POLLRDHUP : POLLIN), 0};
    return alive_ && poll(&entry, 1, 0) == 0;
  }

 private:
  // Closes the socket, whereupon it removes its folders and exits.
  void End() {
    alive_ = false;
    shutdown(child_.socket(), SHUT_RDWR);
    child_.WaitOrKill(kLastWordsMs);
  }

  Status Ended(const Status& why) {
    alive_ = false;
    const ProcessEnd end = child_.WaitOrKill(kLastWordsMs);
    if (why.code() != StatusCode::kIoError) return why;
    return Status::Unavailable("the verifier ended: " + end.ToString());
  }

  ChildProcess child_;
  const DeviceType device_;
  const int device_index_;
  int owed_ = 0;  // replies not received yet
  bool alive_ = true;
};

// A region that is open in a verifier process.
class RemoteEvaluator : public Evaluator {
 public:
  RemoteEvaluator(Verifiers& verifiers, std::unique_ptr<Verifiers::Process> process,
                  OpSignature region)
      : verifiers_(verifiers),
        process_(std::move(process)),
        region_(std::move(region)),
        compilers_(verifiers.CompilersFor(region_.device)) {}
  ~RemoteEvaluator() override {
    for (const Open& open : under_way_) {
      if (open.compiles) compilers_->Forget(open.request.candidate, arch_);
    }
    if (!process_->alive()) return;
    if (!process_->Ask(Command("close"), nullptr).ok()) return;  // waits until its memory is free
    verifiers_.GiveBack(std::move(process_));
  }

  void Begin(const EvaluatorSettings& settings) override {
    CF_CHECK(under_way_.empty());
    compiled_.clear();
    settings_ = settings;
    begun_ = Ask(Command("begin", {{"compile_timeout_ms", settings.compile_timeout_ms},
                                   {"run_timeout_ms", settings.run_timeout_ms},
                                   {"metrics", settings.metrics}}))
                 .status();
  }

  int slots() const override { return 1 + (compilers_ != nullptr ? compilers_->most() : 0); }

  void Submit(EvaluationRequest request) override {
    // Not needed for a trial that a screening compiled, or for an invalid candidate: for that the
    // verifier gives the error. What has no device code is compiled on the device.
    const bool compiles = compilers_ != nullptr && !compiled_.contains(request.id) &&
                          HasDeviceCode(request.candidate.source.language) &&
                          request.candidate.Validate(region_).ok();
    if (compiles) compilers_->Begin(request.candidate, arch_);
    under_way_.push_back({std::move(request), compiles});
  }

  Evaluated Wait() override {
    CF_CHECK(!under_way_.empty()) << "no evaluation is in progress";
    Open open = std::move(under_way_.front());
    under_way_.pop_front();
    return {open.request.id, Evaluate(&open)};
  }

  double proof_seconds() const override { return proof_seconds_; }
  PhaseSeconds spent() const override {
    PhaseSeconds spent = spent_;
    spent.compile += compile_s_;
    return spent;
  }

  // Handles the reply to "open".
  Status Opened(const Json& reply) {
    CF_ASSIGN_OR_RETURN(arch_, JsonString(reply, "arch"));
    CF_ASSIGN_OR_RETURN(spent_, SpentFromJson(MemberOrNull(reply, "spent")));
    return Status::Ok();
  }

  Json facts() override {
    if (!facts_.has_value()) {
      const Result<Frame> reply = Ask(Command("facts"));
      facts_ = reply.ok() ? MemberOrNull(reply->body, "facts") : Json::object();
    }
    return *facts_;
  }

 private:
  struct Open {
    EvaluationRequest request;
    bool compiles = false;  // in another process than the verifier
  };

  Result<Frame> Ask(const Frame& request) {
    if (!process_->alive()) return Status::Unavailable("the verifier has ended");
    return process_->Ask(request, settings_.cancel);
  }

  Result<Evaluation> Evaluate(Open* open) {
    EvaluationRequest& request = open->request;
    CF_RETURN_IF_ERROR(begun_);
    double waited = 0;
    Frame asked = Command("evaluate");
    if (open->compiles) {
      const Stopwatch watch(&waited);
      CF_ASSIGN_OR_RETURN(request.compiled,
                          compilers_->Finish(request.candidate, arch_, settings_.compile_timeout_ms,
                                             settings_.cancel));
      compiled_.insert(request.id);
      if (request.compiled->ok) {
        CF_ASSIGN_OR_RETURN(UniqueFd binary,
                            MakeMemFile(std::string_view(request.compiled->binary)));
        asked.fds.push_back(std::move(binary));
      }
    }
    compile_s_ += waited;
    asked.body["request"] = RequestToJson(request);
    CF_ASSIGN_OR_RETURN(const Frame reply, Ask(asked));
    CF_ASSIGN_OR_RETURN(proof_seconds_, JsonDouble(reply.body, "proof_seconds"));
    CF_ASSIGN_OR_RETURN(spent_, SpentFromJson(MemberOrNull(reply.body, "spent")));
    if (reply.body.contains("error")) return ErrorIn(reply.body);
    std::string binary;
    if (!reply.fds.empty()) {
      CF_ASSIGN_OR_RETURN(binary, ReadMemFile(reply.fds[0].get(), kMaxBinaryBytes));
    }
    CF_ASSIGN_OR_RETURN(Evaluation found, EvaluationFromJson(MemberOrNull(reply.body, "evaluation"),
                                                             request.candidate, std::move(binary)));
    found.seconds += waited;
    return found;
  }

  Verifiers& verifiers_;
  std::unique_ptr<Verifiers::Process> process_;
  const OpSignature region_;
  Compilers* const compilers_;  // nullptr: the verifier compiles
  std::string arch_;
  EvaluatorSettings settings_;
  Status begun_;
  std::deque<Open> under_way_;  // oldest first
  std::set<int> compiled_;      // trials since Begin
  double compile_s_ = 0;        // spent waiting for compilers
  double proof_seconds_ = 0;
  PhaseSeconds spent_;
  std::optional<Json> facts_;
};

int CompilersOfThisMachine(DeviceType device) {
  constexpr int kCoresOfAGpu = 2, kCoresOfACompiler = 2, kMost = 6;
  if (device == DeviceType::kCpu) return 0;
  const int cores = static_cast<int>(AllowedCpus().size());
  return std::clamp((cores - kCoresOfAGpu) / kCoresOfACompiler, 0, kMost);
}

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
  CF_RETURN_IF_ERROR(
      process->Send(Command("hello", {{"protocol", kVerifierProtocol},
                                      {"device", DeviceTypeName(device)},
                                      {"device_index", device_index},
                                      {"worker", options_.worker},
                                      {"cxx", options_.cxx},
                                      {"cuda_search_paths", options_.cuda_search_paths}})));
  return process;
}

Compilers* Verifiers::CompilersFor(DeviceType device) {
  const std::lock_guard lock(mutex_);
  auto& made = compilers_[device];
  const int most = made == nullptr ? options_.compilers(device) : 0;
  if (most > 0) {
    WorkerOptions worker;
    worker.executable = options_.worker;
    worker.device = device;
    worker.cxx = options_.cxx;
    worker.cuda_search_paths = options_.cuda_search_paths;
    made = std::make_unique<Compilers>(std::move(worker), most);
  }
  return made.get();
}

void Verifiers::CompileAhead(const Candidate& candidate, DeviceType device,
                             const std::string& arch) {
  if (!HasDeviceCode(candidate.source.language)) return;
  if (Compilers* compilers = CompilersFor(device)) compilers->Begin(candidate, arch);
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
  std::list<std::unique_ptr<Process>> ending;  // destroyed without the lock, because it takes time
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
  Frame open = Command("open", {{"region", region.ToJson()}});
  if (std::isfinite(seconds)) open.body["seconds"] = seconds;
  const Result<Frame> reply = process->Ask(open, cancel);
  auto evaluator = std::make_unique<RemoteEvaluator>(*this, std::move(process), region);
  CF_RETURN_IF_ERROR(reply.status());
  CF_RETURN_IF_ERROR(evaluator->Opened(reply->body));
  return std::unique_ptr<Evaluator>(std::move(evaluator));
}

}  // namespace cudaforge
