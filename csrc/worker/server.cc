#include "worker/server.h"

#include <exception>
#include <memory>
#include <utility>

#include "worker/launch_server.h"
#include "worker/protocol.h"

namespace cudaforge {
namespace {

constexpr int kReplyTimeoutMs = 60'000;

// An answer, and whether the worker exits after it.
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
                               ", not the requested " + std::to_string(protocol));
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
  if (body.contains("compiles_for")) {
    CF_ASSIGN_OR_RETURN(setup.compiles_for, JsonString(body, "compiles_for"));
  }
  return setup;
}

Result<Reply> Compile(Compiler& compiler, const Json& body) {
  CF_ASSIGN_OR_RETURN(const Json source, JsonField(body, "source"));
  CF_ASSIGN_OR_RETURN(const std::string language, JsonString(source, "language"));
  KernelSource kernel;
  CF_ASSIGN_OR_RETURN(kernel.language, ParseLanguage(language));
  CF_ASSIGN_OR_RETURN(kernel.code, JsonString(source, "code"));
  CF_ASSIGN_OR_RETURN(const int64_t timeout_ms, JsonInt(body, "timeout_ms"));
  const CompileResult compiled = compiler.Compile(kernel, static_cast<int>(timeout_ms));
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

Result<Reply> Facts(Target& target) {
  CF_ASSIGN_OR_RETURN(Json facts, target.Facts());
  Reply reply;
  reply.frame.body = {{"ok", true}, {"facts", std::move(facts)}};
  return reply;
}

// The device with its objects, or only a compiler.
struct Service {
  std::unique_ptr<Compiler> compiler;
  std::unique_ptr<Target> target;
  std::unique_ptr<LaunchServer> mapped;  // destroyed first
};

struct Factories {
  const TargetFactory& target;
  const CompilerFactory& compiler;
};

Result<Reply> Answer(const Factories& make, Service* service, const Frame& frame) {
  std::unique_ptr<Target>* const target = &service->target;
  CF_ASSIGN_OR_RETURN(const std::string command, JsonString(frame.body, "command"));
  if (command == "hello") {
    CF_ASSIGN_OR_RETURN(const WorkerSetup setup, ParseSetup(frame.body));
    service->mapped.reset();
    if (!setup.compiles_for.empty()) {
      target->reset();
      CF_ASSIGN_OR_RETURN(service->compiler, make.compiler(setup));
      Reply reply;
      reply.frame.body = {
          {"ok", true}, {"protocol", kWorkerProtocol}, {"arch", setup.compiles_for}};
      return reply;
    }
    service->compiler.reset();
    CF_ASSIGN_OR_RETURN(std::unique_ptr<Target> made, make.target(setup));
    CF_RETURN_IF_ERROR(made->Scrub(0));  // compiles the kernels for every launch
    *target = std::move(made);
    service->mapped = std::make_unique<LaunchServer>(**target, setup.device);
    Reply reply;
    reply.frame.body = {
        {"ok", true}, {"protocol", kWorkerProtocol}, {"arch", (*target)->arch().target}};
    return reply;
  }
  if (service->compiler != nullptr) {
    if (command == "compile") return Compile(*service->compiler, frame.body);
    return Status::Unsupported("this worker only compiles");
  }
  if (*target == nullptr) return Status::InvalidArgument("the first command must be hello");
  if (command == "compile") {
    Result<Reply> reply = Compile(**target, frame.body);
    if (reply.ok()) reply->fatal = (*target)->poisoned();  // it may have run on the device
    return reply;
  }
  if (command == "facts") return Facts(**target);
  if (LaunchServer::Knows(command)) {
    CF_ASSIGN_OR_RETURN(LaunchReply reply, service->mapped->Answer(command, frame));
    return Reply{{std::move(reply.body), {}}, reply.fatal};
  }
  return Status::InvalidArgument("unknown command \"" + command.substr(0, 40) + "\"");
}

// In "compile", the source may have caused an exception. Any other exception is this process's own
// (no memory, for example).
Reply ExceptionReply(const Frame& frame, const std::string& what) {
  const auto command = JsonString(frame.body, "command");
  const std::string message = "an exception in the worker: " + what;
  if (command.ok() && *command == "compile") {
    Reply reply;
    reply.fatal = true;
    reply.frame.body = {{"ok", true}, {"compiled", false}, {"log", message}};
    return reply;
  }
  return ErrorReply(Status::Internal(message), true);
}

Reply AnswerOrError(const Factories& make, Service* service, const Frame& frame) {
  const auto poisoned = [&] { return service->target != nullptr && service->target->poisoned(); };
  try {
    auto reply = Answer(make, service, frame);
    if (reply.ok()) return std::move(*reply);
    Reply error = ErrorReply(reply.status(), poisoned());
    if (service->target == nullptr &&
        service->compiler == nullptr) {  // too little memory is not permanent
      error.frame.body["code"] = StatusCodeName(reply.status().code());
    }
    return error;
  } catch (const CheckError& error) {  // our bug, whatever the candidate
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

Status ServeWorker(int socket, const TargetFactory& make_target,
                   const CompilerFactory& make_compiler) {
  const Factories make{make_target, make_compiler};
  Service service;
  while (true) {
    auto frame = ReceiveFrame(socket, -1);
    if (!frame.ok()) {
      return frame.status().code() == StatusCode::kIoError ? Status::Ok() : frame.status();
    }
    Reply reply = AnswerOrError(make, &service, *frame);
    if (reply.fatal) reply.frame.body["fatal"] = true;
    if (frame->body.contains("id")) reply.frame.body["id"] = frame->body["id"];
    CF_RETURN_IF_ERROR(SendFrame(socket, reply.frame, kReplyTimeoutMs));
    if (reply.fatal) return Status::Ok();
  }
}

}  // namespace cudaforge
