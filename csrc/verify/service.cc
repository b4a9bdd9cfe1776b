#include "verify/service.h"

#include <algorithm>
#include <exception>
#include <future>
#include <limits>
#include <optional>
#include <random>
#include <utility>

#include "target/target.h"
#include "verify/device_memory.h"
#include "verify/local_evaluator.h"
#include "verify/messages.h"
#include "verify/own_kernels.h"
#include "verify/worker_region_verifier.h"
#include "worker/worker_client.h"

namespace cudaforge {
namespace {

constexpr int kReplyTimeoutMs = 60'000;

uint64_t RandomSeed() {
  std::random_device random;
  return (uint64_t{random()} << 32) | random();
}

class Service {
 public:
  explicit Service(const MakeReference& make_reference) : make_reference_(make_reference) {}

  // True after a successful "hello", which every other command needs.
  bool ready() const { return reference_ != nullptr; }

  Result<Frame> Answer(const Frame& request) {
    const Json& body = request.body;
    CF_ASSIGN_OR_RETURN(const std::string command, JsonString(body, "command"));
    if (command == "hello") return Hello(body);
    if (reference_ == nullptr) return Status::InvalidArgument("the first command must be hello");
    if (command == "open") return Open(body);
    if (command == "close") {
      Close();
      return Said();
    }
    if (evaluator_ == nullptr) return Status::InvalidArgument("no region is open");
    if (command == "begin") return Begin(body);
    if (command == "evaluate") return Evaluate(request);
    if (command == "facts") return Said({{"facts", evaluator_->facts()}});
    return Status::InvalidArgument("unknown command \"" + command.substr(0, 40) + "\"");
  }

 private:
  static Frame Said(Json body = Json::object()) {
    Frame frame;
    frame.body = std::move(body);
    frame.body["ok"] = true;
    return frame;
  }

  Result<Frame> Hello(const Json& body) {
    CF_ASSIGN_OR_RETURN(const int64_t protocol, JsonInt(body, "protocol"));
    if (protocol != kVerifierProtocol) return Status::Unsupported("another protocol");
    VerifierSetup setup;
    CF_ASSIGN_OR_RETURN(const std::string device, JsonString(body, "device"));
    CF_ASSIGN_OR_RETURN(setup.device, ParseDeviceType(device));
    CF_ASSIGN_OR_RETURN(const int64_t index, JsonInt(body, "device_index"));
    setup.device_index = device_index_ = static_cast<int>(index);
    WorkerOptions worker;
    worker.device = setup.device;
    worker.device_index = setup.device_index;
    CF_ASSIGN_OR_RETURN(worker.executable, JsonString(body, "worker"));
    CF_ASSIGN_OR_RETURN(worker.cxx, JsonString(body, "cxx"));
    CF_ASSIGN_OR_RETURN(const Json paths, JsonField(body, "cuda_search_paths"));
    for (const Json& path : paths) worker.cuda_search_paths.push_back(path.get<std::string>());
    // In parallel, because CUDA contexts and NVRTC take seconds.
    auto opened = std::async(std::launch::async, [&] { return OpenDevice(worker); });
    worker_.emplace(worker);
    CF_ASSIGN_OR_RETURN(std::unique_ptr<Reference> reference, make_reference_(setup));
    CF_RETURN_IF_ERROR(worker_->Start());
    CF_RETURN_IF_ERROR(opened.get());
    reference_ = std::move(reference);
    return Said();
  }

  Status OpenDevice(const WorkerOptions& worker) {
    if (worker.device == DeviceType::kCpu) {
      CF_ASSIGN_OR_RETURN(target_, MakeCpuTarget({.cxx = worker.cxx}));
      memory_ = MakeCpuMemory();
      return Status::Ok();
    }
    CF_ASSIGN_OR_RETURN(
        target_, MakeCudaTarget(worker.device_index,
                                {.search_paths = worker.cuda_search_paths, .own_stream = false}));
    CF_ASSIGN_OR_RETURN(std::unique_ptr<OwnKernels> kernels,
                        OwnKernels::Create(worker.device_index, worker.cuda_search_paths));
    memory_ = MakeCudaMemory(std::move(kernels));
    return Status::Ok();
  }

  void Close() {
    evaluator_.reset();
    verifier_.reset();
    answers_.reset();
  }

  Result<Frame> Open(const Json& body) {
    Close();
    CF_ASSIGN_OR_RETURN(const Json region, JsonField(body, "region"));
    CF_ASSIGN_OR_RETURN(region_, OpSignature::FromJson(region));
    const Result<double> seconds = JsonDouble(body, "seconds");
    CF_ASSIGN_OR_RETURN(const int64_t free, target_->FreeBytes());
    CF_ASSIGN_OR_RETURN(answers_, reference_->Open(*region_, *memory_, free));
    CF_ASSIGN_OR_RETURN(verifier_,
                        WorkerRegionVerifier::Create(
                            *region_, *target_, *memory_, *worker_, *answers_, RandomSeed(),
                            seconds.ok() ? *seconds : std::numeric_limits<double>::infinity()));
    evaluator_ = std::make_unique<LocalEvaluator>(*region_, *worker_, *verifier_, device_index_);
    return Said({{"arch", target_->arch().target}, {"spent", SpentToJson(evaluator_->spent())}});
  }

  Result<Frame> Begin(const Json& body) {
    EvaluatorSettings settings;
    CF_ASSIGN_OR_RETURN(const int64_t compile_ms, JsonInt(body, "compile_timeout_ms"));
    CF_ASSIGN_OR_RETURN(const int64_t run_ms, JsonInt(body, "run_timeout_ms"));
    CF_ASSIGN_OR_RETURN(settings.metrics, JsonBool(body, "metrics"));
    settings.compile_timeout_ms = static_cast<int>(compile_ms);
    settings.run_timeout_ms = static_cast<int>(run_ms);
    evaluator_->Begin(settings);
    return Said();
  }

  Result<Frame> Evaluate(const Frame& asked) {
    CF_ASSIGN_OR_RETURN(const Json json, JsonField(asked.body, "request"));
    std::string binary;
    if (!asked.fds.empty()) {
      CF_ASSIGN_OR_RETURN(binary, ReadMemFile(asked.fds[0].get(), kMaxBinaryBytes));
    }
    CF_ASSIGN_OR_RETURN(EvaluationRequest request, RequestFromJson(json, std::move(binary)));
    evaluator_->Submit(std::move(request));
    const Evaluated done = evaluator_->Wait();
    Frame frame = Said({{"proof_seconds", evaluator_->proof_seconds()},
                        {"spent", SpentToJson(evaluator_->spent())}});
    if (!done.evaluation.ok()) {
      PutError(done.evaluation.status(), &frame.body);
      return frame;
    }
    frame.body["evaluation"] = EvaluationToJson(*done.evaluation);
    if (const auto& kernel = done.evaluation->kernel) {
      CF_ASSIGN_OR_RETURN(UniqueFd binary, MakeMemFile(std::string_view(kernel->binary)));
      frame.fds.push_back(std::move(binary));
    }
    return frame;
  }

  const MakeReference& make_reference_;
  std::unique_ptr<Reference> reference_;
  std::unique_ptr<Target> target_;
  std::unique_ptr<DeviceMemory> memory_;
  std::optional<WorkerClient> worker_;
  std::optional<OpSignature> region_;
  std::unique_ptr<RegionReference> answers_;
  std::unique_ptr<WorkerRegionVerifier> verifier_;
  std::unique_ptr<LocalEvaluator> evaluator_;
  int device_index_ = 0;
};

Frame ErrorFrame(const Status& status, bool fatal) {
  Frame frame;
  frame.body = {{"ok", false}};
  if (fatal) frame.body["fatal"] = true;
  PutError(status, &frame.body);
  return frame;
}

}  // namespace

Status ServeVerifier(int socket, const MakeReference& make_reference) {
  Service service(make_reference);
  while (true) {
    const Result<Frame> request = ReceiveFrame(socket, -1);
    if (!request.ok()) {
      return request.status().code() == StatusCode::kIoError ? Status::Ok() : request.status();
    }
    Frame reply;
    try {
      Result<Frame> answer = service.Answer(*request);
      reply = answer.ok() ? *std::move(answer) : ErrorFrame(answer.status(), !service.ready());
    } catch (const std::exception& error) {  // the state of this process is unknown now
      reply = ErrorFrame(Status::Internal(error.what()), true);
    }
    CF_RETURN_IF_ERROR(SendFrame(socket, reply, kReplyTimeoutMs));
    if (reply.body.contains("fatal")) return Status::Ok();
  }
}

}  // namespace cudaforge
