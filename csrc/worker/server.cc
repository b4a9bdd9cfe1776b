#include "worker/server.h"

#include <exception>
#include <memory>
#include <utility>

#include "worker/guarded_run.h"
#include "worker/mapped_server.h"
#include "worker/protocol.h"

namespace cudaforge {
namespace {

constexpr int kReplyTimeoutMs = 60'000;
constexpr int kMaxSamples = 10'000;

// An answer, and whether the worker ends after it.
struct Reply {
  Frame frame;
  bool fatal = false;
};

Reply ErrorReply(const Status& status, bool fatal) {
  Reply reply;
  reply.fatal = fatal;
  reply.frame.body = {{"ok", false}, {"error", status.ToString()}};
  return reply;
}

Result<WorkerSetup> ParseSetup(const Json& body) {
  WorkerSetup setup;
  CF_ASSIGN_OR_RETURN(const int64_t protocol, JsonInt(body, "protocol"));
  if (protocol != kWorkerProtocol) {
    return Status::Unsupported("this worker speaks protocol " + std::to_string(kWorkerProtocol) +
                               ", asked for " + std::to_string(protocol));
  }
  CF_ASSIGN_OR_RETURN(const std::string device, JsonString(body, "device"));
  CF_ASSIGN_OR_RETURN(setup.device, ParseDeviceType(device));
  CF_ASSIGN_OR_RETURN(const int64_t index, JsonInt(body, "device_index"));
  if (index < 0 || index > 1024) return Status::InvalidArgument("device_index: out of range");
  setup.device_index = static_cast<int>(index);
  CF_ASSIGN_OR_RETURN(setup.cxx, JsonString(body, "cxx"));
  CF_ASSIGN_OR_RETURN(const Json paths, JsonField(body, "cuda_search_paths"));
  if (!paths.is_array()) return Status::InvalidArgument("cuda_search_paths: expected an array");
  for (const Json& path : paths) {
    if (!path.is_string()) return Status::InvalidArgument("cuda_search_paths: expected strings");
    setup.cuda_search_paths.push_back(path.get<std::string>());
  }
  return setup;
}

Result<Reply> Compile(Target& target, const Json& body) {
  CF_ASSIGN_OR_RETURN(const Json source, JsonField(body, "source"));
  CF_ASSIGN_OR_RETURN(const std::string language, JsonString(source, "language"));
  KernelSource kernel;
  CF_ASSIGN_OR_RETURN(kernel.language, ParseLanguage(language));
  CF_ASSIGN_OR_RETURN(kernel.code, JsonString(source, "code"));
  CF_ASSIGN_OR_RETURN(const int64_t timeout_ms, JsonInt(body, "timeout_ms"));
  const CompileResult compiled = target.Compile(kernel, static_cast<int>(timeout_ms));
  CF_RETURN_IF_ERROR(compiled.fault);
  Reply reply;
  reply.frame.body = {{"ok", true},
                      {"compiled", compiled.ok},
                      {"log", compiled.log},
                      {"resources", compiled.resources}};
  if (compiled.ok) {
    CF_ASSIGN_OR_RETURN(UniqueFd binary, MakeMemFile(std::string_view(compiled.binary)));
    reply.frame.fds.push_back(std::move(binary));
  }
  return reply;
}

// What "run", "time" and "profile" share, read from the request.
struct Work {
  Candidate candidate;
  OpSignature signature;
  std::vector<MemFileMap> maps;
  std::vector<std::string_view> inputs;  // in maps[0]
  std::vector<int64_t> shifts;
  std::string binary;

  GuardedRunRequest Request() const { return {&candidate, &signature, inputs, shifts, {}, 0, {}}; }
};

Result<Work> ParseWork(const Frame& frame) {
  Work work;
  CF_ASSIGN_OR_RETURN(const Json candidate, JsonField(frame.body, "candidate"));
  CF_ASSIGN_OR_RETURN(work.candidate, Candidate::FromJson(candidate));
  CF_ASSIGN_OR_RETURN(const Json signature, JsonField(frame.body, "signature"));
  CF_ASSIGN_OR_RETURN(work.signature, OpSignature::FromJson(signature));
  CF_RETURN_IF_ERROR(work.candidate.Validate(work.signature));
  if (frame.fds.size() < 2) return Status::InvalidArgument("binary or inputs are missing");
  CF_ASSIGN_OR_RETURN(work.binary, ReadMemFile(frame.fds[0].get(), kMaxBinaryBytes));
  CF_ASSIGN_OR_RETURN(const Json inputs, JsonField(frame.body, "inputs"));
  if (!inputs.is_array() || inputs.size() != work.signature.inputs.size()) {
    return Status::InvalidArgument("inputs: one entry per input");
  }
  CF_ASSIGN_OR_RETURN(MemFileMap map, MemFileMap::Map(frame.fds[1].get(), /*writable=*/false));
  work.maps.push_back(std::move(map));
  for (size_t i = 0; i < inputs.size(); ++i) {
    CF_ASSIGN_OR_RETURN(const int64_t at, JsonInt(inputs[i], "at"));
    CF_ASSIGN_OR_RETURN(const int64_t shift, JsonInt(inputs[i], "shift"));
    if (at < 0 || shift < 0 || shift >= 256) return Status::InvalidArgument("inputs: out of range");
    const int64_t bytes = work.signature.inputs[i].StorageBytes();
    CF_ASSIGN_OR_RETURN(const char* data, work.maps[0].At(at, bytes));
    work.inputs.emplace_back(data, static_cast<size_t>(bytes));
    work.shifts.push_back(shift);
  }
  return work;
}

Reply VerdictReply(const Verdict& verdict, bool fatal) {
  Reply reply;
  reply.fatal = fatal;
  reply.frame.body = {{"ok", true}, {"verdict", verdict.ToJson()}};
  return reply;
}

Result<Reply> Run(Target& target, const Frame& frame) {
  CF_ASSIGN_OR_RETURN(const Work work, ParseWork(frame));
  if (frame.fds.size() != 3) return Status::InvalidArgument("run: three descriptors");
  GuardedRunRequest request = work.Request();
  CF_ASSIGN_OR_RETURN(const int64_t poison, JsonInt(frame.body, "poison"));
  CF_ASSIGN_OR_RETURN(const int64_t seed, JsonInt(frame.body, "guard_seed"));
  CF_ASSIGN_OR_RETURN(const int64_t fence, JsonInt(frame.body, "fence"));
  CF_ASSIGN_OR_RETURN(request.plan.again, JsonBool(frame.body, "again"));
  CF_ASSIGN_OR_RETURN(request.plan.new_thread, JsonBool(frame.body, "new_thread"));
  if (fence < 0 || fence > static_cast<int>(RunPlan::Fence::kAfter)) {
    return Status::InvalidArgument("run: no such fence");
  }
  request.plan.poison = static_cast<uint8_t>(poison);
  request.plan.fence = static_cast<RunPlan::Fence>(fence);
  request.guard_seed = static_cast<uint64_t>(seed);
  CF_ASSIGN_OR_RETURN(const Json outputs, JsonField(frame.body, "outputs"));
  if (!outputs.is_array() || outputs.size() != work.signature.outputs.size()) {
    return Status::InvalidArgument("outputs: one entry per output");
  }
  CF_ASSIGN_OR_RETURN(const MemFileMap map, MemFileMap::Map(frame.fds[2].get(), /*writable=*/true));
  std::vector<char*> places;
  for (size_t o = 0; o < outputs.size(); ++o) {
    CF_ASSIGN_OR_RETURN(const int64_t at, JsonInt(outputs[o], "at"));
    CF_ASSIGN_OR_RETURN(char* place, map.At(at, work.signature.output_spec(o).StorageBytes()));
    places.push_back(place);
  }
  request.outputs = places;
  auto executable = target.Load(work.binary, work.candidate, work.signature);
  if (!executable.ok()) {
    return VerdictReply(
        {VerdictKind::kLaunchError,
         "the binary could not be loaded: " + executable.status().message(), Json::object()},
        target.poisoned());
  }
  CF_ASSIGN_OR_RETURN(const GuardedRunResult result, RunGuarded(target, **executable, request));
  return VerdictReply(result.verdict, result.device_error || target.poisoned());
}

Result<Reply> Time(Target& target, const Frame& frame) {
  CF_ASSIGN_OR_RETURN(const Work work, ParseWork(frame));
  CF_ASSIGN_OR_RETURN(const int64_t samples, JsonInt(frame.body, "samples"));
  if (samples < 1 || samples > kMaxSamples) return Status::InvalidArgument("samples: 1 to 10000");
  CF_ASSIGN_OR_RETURN(const int64_t least, JsonInt(frame.body, "least"));
  if (least < 1 || least > samples) return Status::InvalidArgument("least: 1 to samples");
  TimingPlan plan{static_cast<int>(samples), static_cast<int>(least)};
  CF_ASSIGN_OR_RETURN(plan.total_ns, JsonDouble(frame.body, "total_ns"));
  CF_ASSIGN_OR_RETURN(plan.abandon_ns, JsonDouble(frame.body, "abandon_ns"));
  CF_ASSIGN_OR_RETURN(const auto executable,
                      target.Load(work.binary, work.candidate, work.signature));
  CF_ASSIGN_OR_RETURN(const double nanoseconds,
                      TimeRuns(target, *executable, work.Request(), plan));
  Reply reply;
  reply.frame.body = {{"ok", true}, {"nanoseconds", nanoseconds}};
  return reply;
}

Result<Reply> Profile(Target& target, const Frame& frame) {
  CF_ASSIGN_OR_RETURN(const Work work, ParseWork(frame));
  CF_ASSIGN_OR_RETURN(const int64_t tier, JsonInt(frame.body, "tier"));
  if (tier < 0 || tier > kMaxProfileTier) return Status::InvalidArgument("tier: 0 to 4");
  CF_ASSIGN_OR_RETURN(const auto executable,
                      target.Load(work.binary, work.candidate, work.signature));
  CF_ASSIGN_OR_RETURN(Json profile,
                      ProfileRuns(target, *executable, work.Request(), static_cast<int>(tier)));
  Reply reply;
  reply.frame.body = {{"ok", true}, {"profile", std::move(profile)}};
  return reply;
}

Result<Reply> Facts(Target& target) {
  CF_ASSIGN_OR_RETURN(Json facts, target.Facts());
  Reply reply;
  reply.frame.body = {{"ok", true}, {"facts", std::move(facts)}};
  return reply;
}

// The device and what lies on it.
struct Service {
  std::unique_ptr<Target> target;
  std::unique_ptr<MappedServer> mapped;  // destroyed first
};

Result<Reply> Answer(const TargetFactory& make_target, Service* service, const Frame& frame) {
  std::unique_ptr<Target>* const target = &service->target;
  CF_ASSIGN_OR_RETURN(const std::string command, JsonString(frame.body, "command"));
  if (command == "hello") {
    CF_ASSIGN_OR_RETURN(const WorkerSetup setup, ParseSetup(frame.body));
    service->mapped.reset();
    CF_ASSIGN_OR_RETURN(*target, make_target(setup));
    service->mapped = std::make_unique<MappedServer>(**target, setup.device);
    Reply reply;
    reply.frame.body = {
        {"ok", true}, {"protocol", kWorkerProtocol}, {"arch", (*target)->arch().target}};
    return reply;
  }
  if (*target == nullptr) return Status::InvalidArgument("the first command must be hello");
  if (command == "compile") return Compile(**target, frame.body);
  if (command == "run") return Run(**target, frame);
  if (command == "time") return Time(**target, frame);
  if (command == "profile") return Profile(**target, frame);
  if (command == "facts") return Facts(**target);
  if (MappedServer::Knows(command)) {
    CF_ASSIGN_OR_RETURN(MappedReply reply, service->mapped->Answer(command, frame));
    return Reply{{std::move(reply.body), {}}, reply.fatal};
  }
  return Status::InvalidArgument("unknown command \"" + command.substr(0, 40) + "\"");
}

// An exception may be the candidate's doing (a kernel that allocates without end): it gets what a
// crash would have got it.
Reply ExceptionReply(const Frame& frame, const std::string& what) {
  const auto command = JsonString(frame.body, "command");
  const std::string message = "an exception in the worker: " + what;
  if (command.ok() && (*command == "run" || *command == "launch")) {
    return VerdictReply({VerdictKind::kCrashed, message, Json::object()}, true);
  }
  if (command.ok() && *command == "compile") {
    Reply reply;
    reply.fatal = true;
    reply.frame.body = {{"ok", true}, {"compiled", false}, {"log", message}};
    return reply;
  }
  return ErrorReply(Status::Internal(message), true);
}

Reply AnswerOrError(const TargetFactory& make_target, Service* service, const Frame& frame) {
  const auto poisoned = [&] { return service->target != nullptr && service->target->poisoned(); };
  try {
    auto reply = Answer(make_target, service, frame);
    if (reply.ok()) return std::move(*reply);
    return ErrorReply(reply.status(), poisoned());
  } catch (const CheckError& error) {  // ours, whatever the candidate is
    Reply reply = ErrorReply(Status::Internal(error.what()), true);
    reply.frame.body["internal"] = true;
    return reply;
  } catch (const std::exception& error) {
    return ExceptionReply(frame, error.what());
  } catch (...) {
    return ExceptionReply(frame, "of an unknown type");
  }
}

}  // namespace

Status ServeWorker(int socket, const TargetFactory& make_target) {
  Service service;
  while (true) {
    auto frame = ReceiveFrame(socket, -1);
    if (!frame.ok()) {
      return frame.status().code() == StatusCode::kIoError ? Status::Ok() : frame.status();
    }
    Reply reply = AnswerOrError(make_target, &service, *frame);
    if (reply.fatal) reply.frame.body["fatal"] = true;
    if (frame->body.contains("id")) reply.frame.body["id"] = frame->body["id"];
    CF_RETURN_IF_ERROR(SendFrame(socket, reply.frame, kReplyTimeoutMs));
    if (reply.fatal) return Status::Ok();
  }
}

}  // namespace cudaforge
