#include "worker/launch_server.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/random.h"
#include "base/text.h"
#include "target/cpu/cpu_memory.h"
#include "target/elf_check.h"
#include "target/launch_args.h"
#include "worker/launch_json.h"
#include "worker/launch_timing.h"
#include "worker/race_watch.h"
#include "worker/sandbox.h"
#include "worker/team.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace cudaforge {
namespace {

constexpr std::string_view kLaunchCommands[] = {"map",    "unmap", "load",   "unload",
                                                "launch", "time",  "profile"};
constexpr size_t kMostLaunches = 64;
constexpr int kMostTimeoutMs = 3'600'000;

LaunchReply VerdictReplyOf(const Verdict& verdict, bool fatal = false) {
  return {{{"ok", true}, {"verdict", verdict.ToJson()}}, fatal};
}

// For a forked process: moves later library loads of this size by up to 16 times the size, and
// thread stacks by up to 128 MiB. Otherwise all processes of a worker would have the same
// addresses.
void ShiftCode(uint64_t seed, size_t bytes) {
  const auto page = static_cast<size_t>(PageBytes());
  const auto reserve = [](size_t size) {
    return mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) !=
           MAP_FAILED;
  };
  SplitMix random(seed);
  bool reserved = reserve(static_cast<size_t>(1 + random.Below(32)) << 22);
  for (uint64_t left = random.Below(16); reserved && left > 0; --left) {
    reserved = reserve((bytes / page + 1) * page);
  }
}

// The only names of atomic operations in a candidate's text, because it cannot include <atomic>.
bool HasAtomics(const std::string& code) {
  return code.find("__atomic_") != std::string::npos || code.find("__sync_") != std::string::npos;
}

Json StatusAnswer(const Status& status) {
  if (status.ok()) return {{"ok", true}};
  return {{"ok", false}, {"code", StatusCodeName(status.code())}, {"error", status.message()}};
}

// The answer for a timing or profile whose process gave none.
Json AnswerOfEnd(const ForkedEnd& end, const LaunchBuffers& buffers, int timeout_ms) {
  if (end.kind == ForkedEnd::Kind::kAnswered) return end.answer;
  if (end.kind == ForkedEnd::Kind::kKilled) {
    return StatusAnswer(Status::Unavailable("the process that ran it was killed"));
  }
  const Verdict verdict = VerdictOfEnd(end, buffers, timeout_ms);
  StatusCode code = StatusCode::kUnavailable;
  if (verdict.kind == VerdictKind::kTimeout) code = StatusCode::kTimeout;
  if (verdict.kind == VerdictKind::kMemoryFault || verdict.kind == VerdictKind::kModifiedInput) {
    code = StatusCode::kMemoryFault;
  }
  return StatusAnswer({code, verdict.message});
}

Result<int> TimeoutOf(const Json& body) {
  CF_ASSIGN_OR_RETURN(const int64_t timeout_ms, JsonInt(body, "timeout_ms"));
  if (timeout_ms < 1 || timeout_ms > kMostTimeoutMs) {
    return Status::InvalidArgument("timeout_ms: 1 to 3600000");
  }
  return static_cast<int>(timeout_ms);
}

Result<int> MappingOf(const Json& body) {
  CF_ASSIGN_OR_RETURN(const int64_t id, JsonInt(body, "mapping"));
  if (id < 0 || id > INT_MAX) return Status::InvalidArgument("mapping: out of range");
  return static_cast<int>(id);
}

// Touches a forked process's pages before the run, so that no page faults are timed.
void Populate(const LaunchBuffers& buffers) {
  std::set<int> done;
  for (const LaunchBuffer& buffer : buffers.all) {
    if (!done.insert(buffer.mapping_id).second) continue;
    const Mapping& mapping = *buffer.mapping;
    const auto bytes = static_cast<size_t>(mapping.buffer.bytes());
    const int advice = mapping.writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    if (madvise(mapping.buffer.data(), bytes, advice) == 0) continue;
    const auto* page = static_cast<const volatile char*>(mapping.buffer.data());  // before 5.14
    for (size_t i = 0; i < bytes; i += static_cast<size_t>(PageBytes())) static_cast<void>(page[i]);
  }
}

// For a process that exits without destructors, which would make system calls.
template <typename T>
T& Kept(T value) {
  return *new T(std::move(value));
}

using BoundLaunches = std::vector<std::unique_ptr<BoundLaunch>>;

Status RunPart(const BoundLaunch& bound, const LaunchRequest& launch,
               const LaunchContext& context) {
  return launch.prepare ? bound.Prepare(context) : bound.Run(context);
}

Result<BoundLaunches> BindAll(const Executable& executable,
                              const std::vector<LaunchBuffers>& launches) {
  BoundLaunches bound;
  for (const LaunchBuffers& one : launches) {
    CF_ASSIGN_OR_RETURN(std::unique_ptr<BoundLaunch> ready,
                        executable.Bind(one.inputs, one.outputs, one.scratch));
    bound.push_back(std::move(ready));
  }
  return bound;
}

}  // namespace

bool LaunchServer::Knows(std::string_view command) { return IsIn(command, kLaunchCommands); }

Result<LaunchReply> LaunchServer::Answer(const std::string& command, const Frame& frame) {
  if (command == "map") return Map(frame);
  if (command == "unmap") return Unmap(frame.body);
  if (command == "load") return Load(frame);
  if (command == "unload") {
    kernel_.reset();
    return LaunchReply{{{"ok", true}}};
  }
  if (!kernel_.has_value()) return Status::InvalidArgument(command + ": no kernel is loaded");
  if (command == "launch") return Launch(frame.body);
  if (command == "time") return Time(frame.body);
  return Profile(frame.body);
}

Result<LaunchReply> LaunchServer::Map(const Frame& frame) {
  CF_ASSIGN_OR_RETURN(const int id, MappingOf(frame.body));
  CF_ASSIGN_OR_RETURN(const int64_t bytes, JsonInt(frame.body, "bytes"));
  CF_ASSIGN_OR_RETURN(const bool writable, JsonBool(frame.body, "writable"));
  CF_ASSIGN_OR_RETURN(const int64_t shift, JsonInt(frame.body, "shift"));
  if (shift < 0 || shift >= kMapShifts) return Status::InvalidArgument("map: no such shift");
  if (frame.fds.size() != 1) return Status::InvalidArgument("map: one descriptor");
  if (mappings_.contains(id)) return Status::InvalidArgument("map: this mapping is there already");
  Result<DeviceBuffer> buffer = target_.Map(frame.fds[0].get(), bytes, writable, shift);
  if (!buffer.ok()) return LaunchReply{StatusAnswer(buffer.status()), target_.poisoned()};
  mappings_.emplace(id, Mapping{*std::move(buffer), writable});
  return LaunchReply{{{"ok", true}}};
}

Result<LaunchReply> LaunchServer::Unmap(const Json& body) {
  CF_ASSIGN_OR_RETURN(const int id, MappingOf(body));
  if (mappings_.erase(id) == 0) return Status::InvalidArgument("unmap: no such mapping");
  return LaunchReply{{{"ok", true}}};
}

Result<Verdict> LaunchServer::TryLoad(Kernel& kernel, int timeout_ms) {
  const auto refused = [](const Status& status) {
    const bool rule =
        status.code() == StatusCode::kInvalidArgument || status.code() == StatusCode::kUnsupported;
    return Verdict{rule ? VerdictKind::kRefused : VerdictKind::kLaunchError,
                   "the binary could not be loaded: " + status.message(), Json::object()};
  };
  if (const Status legal = kernel.candidate.Validate(kernel.signature); !legal.ok()) {
    return Verdict{VerdictKind::kRefused, legal.message(), Json::object()};
  }
  if (!forks()) {
    auto executable = target_.Load(kernel.binary, kernel.candidate, kernel.signature);
    if (!executable.ok()) {
      Verdict verdict = refused(executable.status());
      verdict.kind = VerdictKind::kLaunchError;
      return verdict;
    }
    kernel.executable = *std::move(executable);
    const auto bytes = kernel.executable->scratch_bytes();
    kernel.scratch_bytes.assign(bytes.begin(), bytes.end());
    return Verdict{};
  }
  if (const Status clean = CheckCpuLibrary(kernel.binary); !clean.ok()) return refused(clean);
  CF_ASSIGN_OR_RETURN(kernel.scratch_bytes,
                      EvaluateScratch(kernel.candidate.plan, kernel.signature));
  const auto load = [&](int) {
    return StatusAnswer(target_.Load(kernel.binary, kernel.candidate, kernel.signature).status());
  };
  CF_ASSIGN_OR_RETURN(const ForkedEnd end, RunForked(load, timeout_ms));
  if (end.kind == ForkedEnd::Kind::kKilled)
    return Status::Unavailable("a loading kernel was killed");
  return VerdictOfEnd(end, {}, timeout_ms);
}

Result<LaunchReply> LaunchServer::Load(const Frame& frame) {
  kernel_.reset();
  Kernel kernel;
  CF_ASSIGN_OR_RETURN(const int timeout_ms, TimeoutOf(frame.body));
  CF_ASSIGN_OR_RETURN(const Json candidate, JsonField(frame.body, "candidate"));
  CF_ASSIGN_OR_RETURN(kernel.candidate, Candidate::FromJson(candidate));
  CF_ASSIGN_OR_RETURN(const Json signature, JsonField(frame.body, "signature"));
  CF_ASSIGN_OR_RETURN(kernel.signature, OpSignature::FromJson(signature));
  if (frame.fds.size() != 1) return Status::InvalidArgument("load: one descriptor");
  CF_ASSIGN_OR_RETURN(kernel.binary, ReadMemFile(frame.fds[0].get(), kMaxBinaryBytes));
  CF_ASSIGN_OR_RETURN(const Verdict verdict, TryLoad(kernel, timeout_ms));
  LaunchReply reply = VerdictReplyOf(verdict, target_.poisoned());
  reply.body["scratch_bytes"] = kernel.scratch_bytes;
  if (verdict.accepted()) kernel_ = std::move(kernel);
  return reply;
}

Result<LaunchBuffers> LaunchServer::Buffers(const LaunchRequest& launch) const {
  return FindBuffers(launch, kernel_->signature, kernel_->scratch_bytes,
                     kernel_->candidate.plan.prepared_bytes.size(), mappings_);
}

// In a forked process: unmaps everything that the run does not name.
void LaunchServer::KeepOnly(const std::vector<LaunchBuffers>& used) const {
  std::set<int> kept;
  for (const LaunchBuffers& launch : used) {
    for (const LaunchBuffer& buffer : launch.all) kept.insert(buffer.mapping_id);
  }
  for (const auto& [id, mapping] : mappings_) {
    if (kept.contains(id)) continue;
    if (mmap(mapping.buffer.data(), static_cast<size_t>(mapping.buffer.bytes()), PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
      _exit(1);
    }
  }
}

Result<LaunchReply> LaunchServer::Launch(const Json& body) {
  CF_ASSIGN_OR_RETURN(const Json json, JsonField(body, "launch"));
  CF_ASSIGN_OR_RETURN(const LaunchRequest launch, LaunchRequestFromJson(json));
  CF_ASSIGN_OR_RETURN(const int timeout_ms, TimeoutOf(body));
  CF_ASSIGN_OR_RETURN(const LaunchBuffers buffers, Buffers(launch));
  if (!forks()) return LaunchHere(launch, buffers);
  const auto run = [&](int pipe) {
    KeepOnly({buffers});
    ShiftCode(launch.seed, kernel_->binary.size());
    auto& executable = Kept(target_.Load(kernel_->binary, kernel_->candidate, kernel_->signature));
    if (!executable.ok()) return StatusAnswer(executable.status());
    auto& bound = Kept((*executable)->Bind(buffers.inputs, buffers.outputs, buffers.scratch));
    if (!bound.ok()) return StatusAnswer(bound.status());
    Populate(buffers);
    const auto prepare = [] { EnterThread(SandboxUse::kLaunch); };
    const bool apart = launch.split == RangeSplit::kApart;
    if (apart) {
      RaceWatch::Start(buffers, launch.seed, HasAtomics(kernel_->candidate.source.code));
    } else {
      Team::Start(launch, target_.arch().threads.value_or(1), prepare);
    }
    prepare();
    EnterSandbox(SandboxUse::kLaunch, pipe);
    const LaunchContext context{nullptr, apart ? RaceWatch::ParallelFor : Team::ParallelFor};
    const Status ran = RunPart(**bound, launch, context);
    return StatusAnswer(ran.ok() && apart ? RaceWatch::Found() : ran);
  };
  CF_ASSIGN_OR_RETURN(const ForkedEnd end, RunForked(run, timeout_ms));
  if (end.kind == ForkedEnd::Kind::kKilled) return LaunchReply{{{"ok", true}, {"killed", true}}};
  return VerdictReplyOf(VerdictOfEnd(end, buffers, timeout_ms));
}

LaunchReply LaunchServer::LaunchHere(const LaunchRequest& launch, const LaunchBuffers& buffers) {
  Status status;
  auto bound = kernel_->executable->Bind(buffers.inputs, buffers.outputs, buffers.scratch);
  if (!bound.ok()) return VerdictReplyOf(VerdictOfLaunch(bound.status()), target_.poisoned());
  if (kernel_->scrubs == 0) kernel_->scrubs = launch.seed;
  const Status scrubbed = target_.Scrub((launch.seed & ~uint64_t{3}) | (kernel_->scrubs++ & 3));
  if (!scrubbed.ok() && target_.poisoned()) return {StatusAnswer(scrubbed), true};
  Status launched = RunPart(**bound, launch, target_.launch_context());
  // Launches some runs twice concurrently: the second finds what the first left on the device.
  if (launched.ok() && launch.seed % 2 == 1) {
    launched = RunPart(**bound, launch, target_.launch_context());
  }
  const Status finished = target_.Synchronize();
  if (launched.ok() && finished.ok()) return VerdictReplyOf({}, target_.poisoned());
  const Status& error = finished.ok() ? launched : finished;
  Verdict verdict = VerdictOfLaunch(error);
  if (!finished.ok()) verdict.kind = VerdictKind::kCrashed;
  verdict.message = "the device reports: " + error.message();
  if (error.code() == StatusCode::kMemoryFault) {
    verdict.kind = VerdictKind::kMemoryFault;
    verdict.message += "; it may have been a write into an input, which is read-only";
  }
  return VerdictReplyOf(verdict, true);
}

Result<LaunchReply> LaunchServer::Time(const Json& body) {
  CF_ASSIGN_OR_RETURN(const TimingPlan plan, TimingPlanFromJson(body));
  CF_ASSIGN_OR_RETURN(const int timeout_ms, TimeoutOf(body));
  CF_ASSIGN_OR_RETURN(const Json list, JsonField(body, "launches"));
  if (!list.is_array() || list.empty() || list.size() > kMostLaunches) {
    return Status::InvalidArgument("launches: 1 to 64 of them");
  }
  std::vector<LaunchBuffers> launches;
  uint64_t seed = 0;
  for (const Json& one : list) {
    CF_ASSIGN_OR_RETURN(const LaunchRequest launch, LaunchRequestFromJson(one));
    seed += launch.seed;
    CF_ASSIGN_OR_RETURN(LaunchBuffers buffers, Buffers(launch));
    launches.push_back(std::move(buffers));
  }
  CF_ASSIGN_OR_RETURN(auto warm, WarmOf(body, launches));
  const bool prepares = !kernel_->candidate.plan.prepare.empty();
  const auto time = [&](const TimedLaunches& timed) -> Json {
    const auto times = TimeLaunches(target_, timed, plan, seed);
    if (!times.ok()) return StatusAnswer(times.status());
    return {{"ok", true},
            {"nanoseconds", times->median_ns},
            {"total_ns", times->total_ns},
            {"prepare_ns", times->prepare_ns}};
  };
  if (!forks()) {
    CF_ASSIGN_OR_RETURN(BoundLaunches bound, BindAll(*kernel_->executable, launches));
    const Json answer = time({std::move(bound), launches, std::move(warm), prepares});
    return LaunchReply{answer, target_.poisoned()};
  }
  const auto run = [&](int pipe) -> Json {
    KeepOnly(launches);
    auto& executable = Kept(target_.Load(kernel_->binary, kernel_->candidate, kernel_->signature));
    if (!executable.ok()) return StatusAnswer(executable.status());
    auto& bound = Kept(BindAll(**executable, launches));
    if (!bound.ok()) return StatusAnswer(bound.status());
    const auto& timed = Kept(TimedLaunches{*std::move(bound), launches, std::move(warm), prepares});
    for (const LaunchBuffers& buffers : launches) Populate(buffers);
    // Starts the pool's threads and allocates what evicts the caches.
    const Result<double> nothing = target_.TimeOnce([] { return Status::Ok(); });
    if (!nothing.ok()) return StatusAnswer(nothing.status());
    EnterThread(SandboxUse::kTime);
    EnterSandbox(SandboxUse::kTime, pipe);
    return time(timed);
  };
  const double began = SteadySeconds();
  CF_ASSIGN_OR_RETURN(const ForkedEnd end, RunForked(run, timeout_ms));
  const double ns = (SteadySeconds() - began) * 1e9;
  Json answer = AnswerOfEnd(end, launches[0], timeout_ms);
  if (answer["ok"] == true) {
    const Result<double> total = JsonDouble(answer, "total_ns");
    const Result<double> median = JsonDouble(answer, "nanoseconds");
    if (!total.ok() || !median.ok() || !(*median > 0) || !(*median <= *total) || !(*total <= ns)) {
      answer = StatusAnswer(Status::Unsupported(
          "the times of its runs are impossible: their sum is more than the time that passed, or "
          "not positive"));
    }
  }
  return LaunchReply{std::move(answer)};
}

Result<LaunchReply> LaunchServer::Profile(const Json& body) {
  CF_ASSIGN_OR_RETURN(const int64_t tier, JsonInt(body, "tier"));
  if (tier < 0 || tier > kMaxProfileTier) return Status::InvalidArgument("tier: 0 to 4");
  CF_ASSIGN_OR_RETURN(const int timeout_ms, TimeoutOf(body));
  CF_ASSIGN_OR_RETURN(const Json json, JsonField(body, "launch"));
  CF_ASSIGN_OR_RETURN(const LaunchRequest launch, LaunchRequestFromJson(json));
  CF_ASSIGN_OR_RETURN(const LaunchBuffers buffers, Buffers(launch));
  const auto profile = [&](const Executable& executable, const BoundLaunch& bound) -> Json {
    const auto enqueue = [&] { return bound.Run(target_.launch_context()); };
    const Status prepared = bound.Prepare(target_.launch_context());
    if (!prepared.ok()) return StatusAnswer(prepared);
    Result<Json> found = target_.Profile(executable, enqueue, static_cast<int>(tier));
    if (!found.ok()) return StatusAnswer(found.status());
    return {{"ok", true}, {"profile", *std::move(found)}};
  };
  if (!forks()) {
    CF_ASSIGN_OR_RETURN(const BoundLaunches bound, BindAll(*kernel_->executable, {buffers}));
    return LaunchReply{profile(*kernel_->executable, *bound[0]), target_.poisoned()};
  }
  const auto run = [&](int pipe) -> Json {
    KeepOnly({buffers});
    auto& executable = Kept(target_.Load(kernel_->binary, kernel_->candidate, kernel_->signature));
    if (!executable.ok()) return StatusAnswer(executable.status());
    const auto& bound = Kept(BindAll(**executable, {buffers}));
    if (!bound.ok()) return StatusAnswer(bound.status());
    Populate(buffers);
    const Result<double> nothing = target_.TimeOnce([] { return Status::Ok(); });
    if (!nothing.ok()) return StatusAnswer(nothing.status());
    EnterThread(SandboxUse::kProfile);
    EnterSandbox(SandboxUse::kProfile, pipe);
    return profile(**executable, *(*bound)[0]);
  };
  CF_ASSIGN_OR_RETURN(const ForkedEnd end, RunForked(run, timeout_ms));
  return LaunchReply{AnswerOfEnd(end, buffers, timeout_ms)};
}

}  // namespace cudaforge
