#include "verify/local_evaluator.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "measure/roofline.h"
#include "measure/timing_lease.h"

namespace cudaforge {
namespace {

constexpr size_t kMaxLogBytes = 4096;
// For every correct candidate, all counters that the Judge uses (traffic, occupancy, hit rates,
// stall reasons), in 4 replays. Throughputs need 9 to 13 replays, so only for a new best
// (TierMetrics).
constexpr int kOrdinaryTier = 3;
constexpr int kBestTier = 4;
constexpr double kLeaseSeconds = 1;  // wait for others' timings; these timings only rank

Status CancelledStatus() { return Status::Cancelled("cancelled"); }
Status OutOfTime() { return Status::Timeout("no time was left"); }

}  // namespace

LocalEvaluator::LocalEvaluator(const OpSignature& region, CandidateRunner& runner,
                               RegionVerifier& verifier, int device_index)
    : region_(region), runner_(runner), verifier_(verifier), device_index_(device_index) {
  CF_CHECK(verifier_.set_count() > 0);
}

void LocalEvaluator::Begin(const EvaluatorSettings& settings) {
  CF_CHECK(requests_.empty());
  screened_.clear();
  settings_ = settings;
  runner_.Limit(settings.compile_timeout_ms, settings.run_timeout_ms, settings.cancel);
}

Json LocalEvaluator::facts() {
  if (!facts_.has_value()) {
    facts_ = Json::object();
    if (Cancelled()) return *facts_;
    if (Result<Json> facts = runner_.Facts(); facts.ok() && facts->is_object()) {
      facts_ = *std::move(facts);
    }
  }
  return *facts_;
}

PhaseSeconds LocalEvaluator::spent() const {
  PhaseSeconds spent = verifier_.spent();
  spent.compile += compile_s_;
  return spent;
}

double LocalEvaluator::proof_seconds() const {
  return slowest_set_ * static_cast<double>(verifier_.set_count());
}

void LocalEvaluator::Submit(EvaluationRequest request) { requests_.push_back(std::move(request)); }

Evaluated LocalEvaluator::Wait() {
  CF_CHECK(!requests_.empty()) << "no evaluation is in progress";
  const EvaluationRequest request = std::move(requests_.front());
  requests_.pop_front();
  return {request.id, Evaluate(request)};
}

Result<Evaluation> LocalEvaluator::Evaluate(const EvaluationRequest& request) {
  const double began = SteadySeconds();
  Evaluation out;
  auto known = screened_.find(request.id);
  if (known == screened_.end()) {
    Built built;
    CF_RETURN_IF_ERROR(Screen(request, &built, &out));
    if (built.ns.has_value()) known = screened_.emplace(request.id, std::move(built)).first;
  } else {
    out.findings.ns = known->second.ns;
    out.findings.prepare_ns = known->second.prepare_ns;
    out.findings.resources = known->second.resources;
  }
  if (request.depth == Depth::kProof && out.findings.verdict.accepted()) {
    const auto taken = screened_.extract(known);
    CF_RETURN_IF_ERROR(Prove(request, taken.mapped(), &out));
  }
  // A worker that we killed looks like a crash of the candidate.
  if (Cancelled() && !out.findings.verdict.accepted()) return CancelledStatus();
  out.seconds = SteadySeconds() - began;
  return out;
}

Status LocalEvaluator::Load(const EvaluationRequest& request, const std::string& binary,
                            Verdict* verdict) {
  if (loaded_ == request.id) return Status::Ok();
  loaded_.reset();
  CF_ASSIGN_OR_RETURN(*verdict, verifier_.Load(binary, request.candidate));
  if (verdict->accepted()) loaded_ = request.id;
  return Status::Ok();
}

Status LocalEvaluator::RunSet(size_t i, Evaluation* out) {
  if (Cancelled()) return CancelledStatus();
  const double began = SteadySeconds();
  Verdict& verdict = out->findings.verdict;
  {
    const Stopwatch watch(&out->device_seconds);
    CF_ASSIGN_OR_RETURN(verdict, verifier_.Run(i));
  }
  if (!verdict.accepted()) verdict.evidence["input_set"] = verifier_.set_name(i);
  // The time of a crash, a hang or a wrong candidate does not predict a correct one's.
  if (!verdict.accepted()) return Status::Ok();
  // The very first run includes one-time setup.
  const double seconds = SteadySeconds() - began;
  slowest_set_ = sets_run_++ < 2 ? seconds : std::max(slowest_set_, seconds);
  return Status::Ok();
}

Status LocalEvaluator::Screen(const EvaluationRequest& request, Built* built, Evaluation* out) {
  Verdict& verdict = out->findings.verdict;
  const Status valid = request.candidate.Validate(region_);
  if (!valid.ok()) {
    verdict = {VerdictKind::kRefused, valid.message(), Json::object()};
    return Status::Ok();
  }
  if (Cancelled()) return CancelledStatus();
  Result<CompileResult> built_now = [&] {
    const Stopwatch watch(&compile_s_);
    std::optional<TimingLease> lease;
    if (!HasDeviceCode(request.candidate.source.language))  // its compilation times algorithms
      lease.emplace(TimingLease::Take(region_.device, device_index_, kLeaseSeconds));
    return request.compiled.has_value() ? Result<CompileResult>(*request.compiled)
                                        : runner_.Compile(request.candidate);
  }();
  CF_ASSIGN_OR_RETURN(CompileResult compiled, std::move(built_now));
  if (!compiled.ok) {
    if (SteadySeconds() >= request.end) return OutOfTime();  // it was the compiler's timeout
    // A log may hold invalid UTF-8, also because cutting may split a character.
    verdict = {VerdictKind::kCompileError, "does not compile",
               LenientCopy({{"log", compiled.log.substr(0, kMaxLogBytes)}})};
    return Status::Ok();
  }
  out->findings.resources = built->resources = std::move(compiled.resources);
  built->binary = std::move(compiled.binary);
  if (SteadySeconds() >= request.screen_end) return OutOfTime();
  loaded_.reset();  // trial numbers are reused for other candidates
  CF_RETURN_IF_ERROR(Load(request, built->binary, &verdict));
  if (!verdict.accepted()) return Status::Ok();
  CF_RETURN_IF_ERROR(RunSet(0, out));
  if (!verdict.accepted()) return Status::Ok();
  if (SteadySeconds() >= request.screen_end_right) return OutOfTime();
  if (Cancelled()) return CancelledStatus();
  TimingPlan plan;
  if (request.depth == Depth::kScreen && request.best_ns.has_value()) {
    plan.abandon_ns = 2 * *request.best_ns;
  }
  {
    const TimingLease lease = TimingLease::Take(region_.device, device_index_, kLeaseSeconds);
    const Stopwatch watch(&out->device_seconds);
    CF_ASSIGN_OR_RETURN(RegionVerifier::Timed timed, verifier_.Time(plan));
    verdict = std::move(timed.verdict);
    if (!verdict.accepted()) {
      verdict.evidence["input_set"] = verifier_.set_name(0) + ", timed";
      return Status::Ok();
    }
    built->ns = timed.ns;
    built->prepare_ns = timed.prepare_ns;
  }
  out->findings.ns = built->ns;
  out->findings.prepare_ns = built->prepare_ns;
  if (request.depth == Depth::kScreen && request.best_ns.has_value() &&
      *built->ns >= *request.best_ns) {
    verdict = {VerdictKind::kTooSlow, "slower than the best", Json::object()};
  }
  return Status::Ok();
}

Status LocalEvaluator::Prove(const EvaluationRequest& request, const Built& built,
                             Evaluation* out) {
  Verdict& verdict = out->findings.verdict;
  CF_RETURN_IF_ERROR(Load(request, built.binary, &verdict));
  Json sets = Json::array();
  for (size_t i = 0; verdict.accepted() && i < verifier_.set_count(); ++i) {
    const size_t more = sets_run_ < 2 ? 1 : verifier_.set_count() - i;  // see RunSet
    const double left = slowest_set_ * static_cast<double>(more);
    if (SteadySeconds() + left > request.end) return OutOfTime();
    CF_RETURN_IF_ERROR(RunSet(i, out));
    sets.push_back(verifier_.set_name(i));
  }
  if (!verdict.accepted()) return Status::Ok();
  out->kernel = ProvenKernel{request.candidate,
                             built.binary,
                             *built.ns,
                             {{"report", verifier_.Report()}, {"cases", std::move(sets)}},
                             built.prepare_ns};
  if (settings_.metrics) Profile(request, out);
  return Status::Ok();
}

void LocalEvaluator::Profile(const EvaluationRequest& request, Evaluation* out) {
  Findings& findings = out->findings;
  if (refusal_.empty() && !Cancelled()) {
    const bool best = !request.best_ns.has_value() || *findings.ns < *request.best_ns;
    const Stopwatch watch(&out->device_seconds);
    Result<Json> profile = verifier_.Profile(best ? kBestTier : kOrdinaryTier);
    if (profile.ok()) {
      findings.profile = AtMeasuredTime(*std::move(profile), *findings.ns);
    } else if (profile.status().code() == StatusCode::kUnsupported) {
      refusal_ = profile.status().message();
    } else {
      findings.profile = {{"note", profile.status().ToString()}};
    }
  }
  if (!refusal_.empty()) findings.profile = {{"note", refusal_}};
  findings.derived = DerivedFacts(findings.profile, facts(), region_, *findings.ns);
}

Result<Evaluation> ProveCandidate(Evaluator& evaluator, const Candidate& candidate,
                                  const EvaluatorSettings& settings) {
  evaluator.Begin(settings);
  evaluator.Submit({.candidate = candidate});
  return evaluator.Wait().evaluation;
}

}  // namespace cudaforge
