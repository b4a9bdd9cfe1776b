// WorkerClient on mapped memory.
#include <cmath>
#include <csignal>
#include <utility>

#include "worker/launch_json.h"
#include "worker/worker_impl.h"

namespace cudaforge {
namespace {

constexpr int kMapTimeoutMs = 60'000;  // a page of 4 KiB takes 0.1 to 0.5 us
constexpr int kWorkerGraceMs = 10'000;

// The error in a failed reply to a request on mapped memory.
Status CodedErrorOf(const Frame& frame) {
  Status plain = ErrorOf(frame);
  const auto code = JsonString(frame.body, "code");
  if (!code.ok()) return plain;
  const StatusCode parsed = ParseStatusCode(*code).value_or(StatusCode::kOk);
  return parsed == StatusCode::kOk ? plain : Status(parsed, plain.message());
}

// Ok for a reply with "ok": true, else the error.
Status CheckAnswer(const WorkerClient::Impl::Answer& answer, const char* what) {
  using Kind = WorkerClient::Impl::Answer::Kind;
  if (answer.kind == Kind::kTimedOut) return Status::Timeout(std::string(what) + " took too long");
  if (answer.kind == Kind::kEnded) {
    return Status::Unavailable(std::string("the worker ended while ") + what + ": " + answer.end);
  }
  return answer.frame.body["ok"] == true ? Status::Ok() : CodedErrorOf(answer.frame);
}

Result<LoadedKernel> LoadedOf(const Frame& frame) {
  LoadedKernel loaded;
  CF_ASSIGN_OR_RETURN(const Json verdict, JsonField(frame.body, "verdict"));
  CF_ASSIGN_OR_RETURN(loaded.verdict, Verdict::FromJson(verdict));
  CF_ASSIGN_OR_RETURN(const Json scratch, JsonField(frame.body, "scratch_bytes"));
  if (!scratch.is_array()) return Status::Corruption("scratch_bytes: expected an array");
  for (const Json& bytes : scratch) {
    if (!bytes.is_number_unsigned()) return Status::Corruption("scratch_bytes: expected sizes");
    loaded.scratch_bytes.push_back(bytes.get<int64_t>());
  }
  return loaded;
}

}  // namespace

// Longer than the worker's own limit, so that the worker answers first.
int WorkerClient::Impl::PatienceMs() const {
  return options_.run_timeout_ms + (options_.device == DeviceType::kCpu ? kWorkerGraceMs : 0);
}

Result<Frame> WorkerClient::Impl::MapRequest(int id, const KeptMapping& mapping) {
  Frame request;
  request.body = {{"command", "map"},
                  {"mapping", id},
                  {"bytes", mapping.bytes},
                  {"writable", mapping.writable},
                  {"shift", mapping.shift}};
  CF_ASSIGN_OR_RETURN(UniqueFd memory, Duplicate(mapping.memory));
  request.fds.push_back(std::move(memory));
  return request;
}

Result<Frame> WorkerClient::Impl::LoadRequest(const KeptKernel& loaded) const {
  Frame request;
  request.body = {{"command", "load"},
                  {"candidate", loaded.candidate},
                  {"signature", loaded.signature},
                  {"timeout_ms", options_.run_timeout_ms}};
  CF_ASSIGN_OR_RETURN(UniqueFd binary, Duplicate(loaded.binary));
  request.fds.push_back(std::move(binary));
  return request;
}

Result<WorkerClient::Impl::Answer> WorkerClient::Impl::AskLaunch(Frame& request, int timeout_ms) {
  CF_RETURN_IF_ERROR(EnsureWorker());
  if (holder_ != started_) {
    for (const auto& [id, mapping] : mappings) {
      CF_ASSIGN_OR_RETURN(Frame map, MapRequest(id, mapping));
      CF_ASSIGN_OR_RETURN(const Answer answer, Exchange(map, kMapTimeoutMs));
      CF_RETURN_IF_ERROR(CheckAnswer(answer, "mapping memory again"));
    }
    if (kernel.has_value()) {
      CF_ASSIGN_OR_RETURN(Frame load, LoadRequest(*kernel));
      CF_ASSIGN_OR_RETURN(const Answer answer, Exchange(load, PatienceMs()));
      CF_RETURN_IF_ERROR(CheckAnswer(answer, "loading a kernel again"));
      CF_ASSIGN_OR_RETURN(const LoadedKernel loaded, LoadedOf(answer.frame));
      if (!loaded.verdict.accepted()) {
        return Status::Unavailable("a kernel does not load again: " + loaded.verdict.message);
      }
    }
    holder_ = started_;
  }
  return Exchange(request, timeout_ms);
}

Result<int> WorkerClient::Map(const SharedMemory& memory, bool writable, int64_t shift) {
  Impl::KeptMapping mapping;
  CF_ASSIGN_OR_RETURN(mapping.memory, memory.Export(writable));
  mapping.bytes = memory.bytes();
  mapping.writable = writable;
  mapping.shift = shift;
  const int id = impl_->next_mapping;
  CF_ASSIGN_OR_RETURN(Frame request, Impl::MapRequest(id, mapping));
  CF_ASSIGN_OR_RETURN(const Impl::Answer answer, impl_->AskLaunch(request, kMapTimeoutMs));
  CF_RETURN_IF_ERROR(CheckAnswer(answer, "mapping memory"));
  impl_->mappings.emplace(id, std::move(mapping));
  return impl_->next_mapping++;
}

Status WorkerClient::Unmap(int id) {
  if (impl_->mappings.erase(id) == 0) {
    return Status::InvalidArgument("there is no mapping " + std::to_string(id));
  }
  if (!impl_->Holds()) return Status::Ok();  // its worker is gone
  Frame request;
  request.body = {{"command", "unmap"}, {"mapping", id}};
  CF_ASSIGN_OR_RETURN(const Impl::Answer answer, impl_->AskLaunch(request, kMapTimeoutMs));
  if (answer.kind != Impl::Answer::Kind::kReply) return Status::Ok();
  return CheckAnswer(answer, "unmapping memory");
}

Result<LoadedKernel> WorkerClient::Load(const std::string& binary, const Candidate& candidate,
                                        const OpSignature& signature) {
  impl_->kernel.reset();
  if (const Status legal = candidate.Validate(signature); !legal.ok()) {
    return LoadedKernel{{}, MakeVerdict(VerdictKind::kRefused, legal.message())};
  }
  Impl::KeptKernel kept;
  CF_ASSIGN_OR_RETURN(kept.binary, MakeMemFile(std::string_view(binary)));
  kept.candidate = candidate.ToJson();
  kept.signature = signature.ToJson();
  CF_ASSIGN_OR_RETURN(Frame request, impl_->LoadRequest(kept));
  CF_ASSIGN_OR_RETURN(const Impl::Answer answer, impl_->AskLaunch(request, impl_->PatienceMs()));
  CF_RETURN_IF_ERROR(CheckAnswer(answer, "loading a kernel"));
  CF_ASSIGN_OR_RETURN(LoadedKernel loaded, LoadedOf(answer.frame));
  if (loaded.verdict.accepted()) impl_->kernel = std::move(kept);
  return loaded;
}

Status WorkerClient::Unload() {
  impl_->kernel.reset();
  if (!impl_->Holds()) return Status::Ok();
  Frame request;
  request.body = {{"command", "unload"}};
  CF_ASSIGN_OR_RETURN(const Impl::Answer answer, impl_->AskLaunch(request, kMapTimeoutMs));
  if (answer.kind != Impl::Answer::Kind::kReply) return Status::Ok();
  return CheckAnswer(answer, "unloading a kernel");
}

Result<Verdict> WorkerClient::Launch(const LaunchRequest& launch) {
  const int timeout_ms = impl_->options().run_timeout_ms;
  Frame request;
  request.body = {
      {"command", "launch"}, {"launch", LaunchRequestToJson(launch)}, {"timeout_ms", timeout_ms}};
  CF_ASSIGN_OR_RETURN(const Impl::Answer answer, impl_->AskLaunch(request, impl_->PatienceMs()));
  if (answer.kind == Impl::Answer::Kind::kTimedOut) {
    return MakeVerdict(VerdictKind::kTimeout,
                       "did not finish within " + std::to_string(timeout_ms) + " ms");
  }
  if (answer.kind == Impl::Answer::Kind::kEnded) {
    // On the CPU the worker runs no candidate, so its end is not the candidate's fault.
    if (answer.signal == SIGKILL || impl_->options().device == DeviceType::kCpu) {
      return Status::Unavailable("the worker ended during a launch: " + answer.end);
    }
    return MakeVerdict(VerdictKind::kCrashed,
                       "the process that ran it ended before it answered: " + answer.end);
  }
  if (answer.frame.body["ok"] != true) return CodedErrorOf(answer.frame);
  if (answer.frame.body.contains("killed")) {
    return Status::Unavailable("the process that ran a candidate was killed");
  }
  const auto field = JsonField(answer.frame.body, "verdict");
  auto verdict = field.ok() ? Verdict::FromJson(*field) : Result<Verdict>(field.status());
  if (!verdict.ok()) {
    return MakeVerdict(VerdictKind::kCrashed,
                       "the worker's verdict cannot be read: " + verdict.status().message());
  }
  return verdict;
}

Result<double> WorkerClient::Time(const std::vector<LaunchRequest>& launches,
                                  const TimingPlan& plan, const std::vector<int>& warm_inputs,
                                  double* prepare_ns) {
  Frame request;
  request.body = TimingPlanToJson(plan);
  request.body["command"] = "time";
  request.body["timeout_ms"] = impl_->options().run_timeout_ms;
  request.body["warm_inputs"] = warm_inputs;
  request.body["launches"] = Json::array();
  for (const LaunchRequest& launch : launches) {
    request.body["launches"].push_back(LaunchRequestToJson(launch));
  }
  CF_ASSIGN_OR_RETURN(const Impl::Answer answer, impl_->AskLaunch(request, impl_->PatienceMs()));
  CF_RETURN_IF_ERROR(CheckAnswer(answer, "timing"));
  CF_ASSIGN_OR_RETURN(const double nanoseconds, JsonDouble(answer.frame.body, "nanoseconds"));
  if (!std::isfinite(nanoseconds) || nanoseconds <= 0) {
    return Status::Corruption("the worker reports a time that is none");
  }
  if (prepare_ns != nullptr) {
    CF_ASSIGN_OR_RETURN(*prepare_ns, JsonDouble(answer.frame.body, "prepare_ns"));
  }
  return nanoseconds;
}

Result<Json> WorkerClient::Profile(const LaunchRequest& launch, int tier) {
  const int timeout_ms = impl_->options().run_timeout_ms + kProfileGraceMs;
  Frame request;
  request.body = {{"command", "profile"},
                  {"launch", LaunchRequestToJson(launch)},
                  {"tier", tier},
                  {"timeout_ms", timeout_ms}};
  CF_ASSIGN_OR_RETURN(const Impl::Answer answer,
                      impl_->AskLaunch(request, impl_->PatienceMs() + kProfileGraceMs));
  CF_RETURN_IF_ERROR(CheckAnswer(answer, "profiling"));
  CF_ASSIGN_OR_RETURN(Json profile, JsonField(answer.frame.body, "profile"));
  if (!profile.is_object()) return Status::Corruption("profile: expected an object");
  return profile;
}

namespace {

Status MapsNothing() { return Status::Unsupported("this runner maps no memory"); }

}  // namespace

Result<int> CandidateRunner::Map(const SharedMemory&, bool, int64_t) { return MapsNothing(); }
Status CandidateRunner::Unmap(int) { return MapsNothing(); }
Result<LoadedKernel> CandidateRunner::Load(const std::string&, const Candidate&,
                                           const OpSignature&) {
  return MapsNothing();
}
Status CandidateRunner::Unload() { return MapsNothing(); }
Result<Verdict> CandidateRunner::Launch(const LaunchRequest&) { return MapsNothing(); }
Result<double> CandidateRunner::Time(const std::vector<LaunchRequest>&, const TimingPlan&,
                                     const std::vector<int>&, double*) {
  return MapsNothing();
}
Result<Json> CandidateRunner::Profile(const LaunchRequest&, int) { return MapsNothing(); }

}  // namespace cudaforge
