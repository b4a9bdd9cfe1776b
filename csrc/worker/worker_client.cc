#include "worker/worker_client.h"

#include <csignal>

#include "worker/worker_impl.h"

namespace cudaforge {
namespace {

constexpr int kCompileGraceMs = 5'000;    // the worker's own limit is reached first
constexpr int kFactsTimeoutMs = 120'000;  // compiles and measures

// The system sends SIGKILL when memory runs out: not the worker's fault.
bool IsKilled(int signal) { return signal == SIGKILL; }

}  // namespace

WorkerClient::WorkerClient(WorkerOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
WorkerClient::~WorkerClient() = default;
void WorkerClient::Limit(int compile_ms, int run_ms, const Cancel* cancel) {
  impl_->Limit(compile_ms, run_ms, cancel);
}

Status WorkerClient::Start() { return impl_->EnsureWorker(); }

int WorkerClient::started() const { return impl_->started(); }

Result<CompileResult> WorkerClient::Compile(const Candidate& candidate) {
  const int timeout_ms = impl_->options().compile_timeout_ms;
  Frame request;
  request.body = {
      {"command", "compile"},
      {"source",
       {{"language", LanguageName(candidate.source.language)}, {"code", candidate.source.code}}},
      {"timeout_ms", timeout_ms}};
  CF_ASSIGN_OR_RETURN(Impl::Answer answer, impl_->Ask(request, timeout_ms + kCompileGraceMs));
  if (answer.kind == Impl::Answer::Kind::kEnded) {  // possibly killed by the system: see IsKilled
    CF_ASSIGN_OR_RETURN(answer, impl_->Ask(request, timeout_ms + kCompileGraceMs));
  }
  CompileResult result;
  if (answer.kind == Impl::Answer::Kind::kTimedOut) {
    result.log = "the compiler did not finish within " + std::to_string(timeout_ms) + " ms";
    return result;
  }
  if (answer.kind == Impl::Answer::Kind::kEnded) {
    const std::string words = "the compiling process ended twice: " + answer.end;
    // NVRTC and nvJitLink run inside the worker and may crash on a source. A host compiler is a
    // separate process.
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

Result<Json> WorkerClient::Facts() {
  if (!impl_->facts.is_null()) return impl_->facts;
  Frame request;
  request.body = {{"command", "facts"}};
  CF_ASSIGN_OR_RETURN(impl_->facts, impl_->AskFor("facts", request, kFactsTimeoutMs));
  return impl_->facts;
}

Result<Json> CandidateRunner::Facts() {
  return Status::Unsupported("this runner does not know the device");
}

}  // namespace cudaforge
