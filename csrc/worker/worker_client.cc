#include "worker/worker_client.h"

#include <algorithm>
#include <cmath>
#include <csignal>

#include "worker/worker_impl.h"

namespace cudaforge {
namespace {

constexpr int kCompileGraceMs = 5'000;    // the worker's own limit comes first
constexpr int kFactsTimeoutMs = 120'000;  // compiles and measures
constexpr double kEndless = 1e18;         // JSON has no infinity

}  // namespace

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

Result<RunOutput> CandidateRunner::Run(const std::string&, const Candidate&, const OpSignature&,
                                       const InputSet&, const RunPlan&) {
  return Status::Unsupported("this runner runs nothing");
}

Result<double> CandidateRunner::Time(const std::string&, const Candidate&, const OpSignature&,
                                     const InputSet&, const TimingPlan&) {
  return Status::Unsupported("this runner times nothing");
}

Result<Json> CandidateRunner::Facts() {
  return Status::Unsupported("this runner does not know the device");
}

}  // namespace cudaforge
