#include "worker/guarded_run.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/integers.h"
#include "base/parallel.h"
#include "base/random.h"

namespace cudaforge {
namespace {

constexpr int64_t kGuardBytes = 128 << 10;
constexpr int64_t kMaxGuardBytes = 1 << 20;
constexpr int64_t kMaxAlignment = 4096;
constexpr int64_t kBlockBytes = int64_t{32} << 20;  // of one copy to or from the device
constexpr int64_t kSpoilStep = 2048;                // bytes
// Of an output: what PyTorch's allocators keep to.
constexpr int64_t kHostAlignment = 64;

int64_t GuardFor(const TensorSpec& spec) {
  const int64_t row = spec.sizes.empty() ? 1 : spec.sizes.back();
  const int64_t bytes = std::min(row, kMaxGuardBytes) * DTypeSize(spec.dtype);
  return RoundUp(std::clamp(bytes, kGuardBytes, kMaxGuardBytes), 4096);
}

// Random bytes that guards are cut from. Each cut starts elsewhere: a candidate that runs past the
// end of two buffers and copies one guard over the other must not leave it as it was.
class Pattern {
 public:
  explicit Pattern(uint64_t seed) : random_(seed) {}

  std::string_view Cut(int64_t bytes) {
    const size_t begin = kStep * cuts_++;
    const size_t end = begin + static_cast<size_t>(bytes);
    CF_CHECK(end <= bytes_.capacity()) << "guards of one run move with their pattern";
    while (bytes_.size() < end) {
      const uint64_t bits = random_.Next();
      bytes_.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
    }
    return std::string_view(bytes_).substr(begin, static_cast<size_t>(bytes));
  }
  // Room for `cuts` cuts of the largest size.
  void Reserve(size_t cuts) {
    bytes_.reserve(kStep * cuts + static_cast<size_t>(kMaxGuardBytes) + kSlack);
  }

 private:
  static constexpr size_t kStep = 72;
  static constexpr size_t kSlack = 1 << 20;  // alignment and shifts
  SplitMix random_;
  std::string bytes_;
  size_t cuts_ = 0;
};

// Where data is to lie: `shift` bytes after a multiple of `alignment`, or, right before a fence, at
// a multiple of `least`, which is what a program must keep to.
struct Placement {
  int64_t alignment = 256;
  int64_t shift = 0;
  int64_t least = 256;
};

// A device buffer between two guards, one of which may be a fence.
class Guarded {
 public:
  static Result<Guarded> Make(Target& target, int64_t bytes, int64_t guard, const Placement& place,
                              RunPlan::Fence fence, Pattern& pattern) {
    const auto& [alignment, shift, least] = place;
    Guarded made;
    made.bytes_ = bytes;
    if (alignment > kMaxAlignment || !target.has_fences()) fence = RunPlan::Fence::kNone;
    const int64_t guards = fence == RunPlan::Fence::kNone ? 2 * guard : guard;
    int64_t total = RoundUp(guards + alignment + shift + bytes, 8);
    if (fence == RunPlan::Fence::kNone) {
      CF_ASSIGN_OR_RETURN(made.buffer_, target.Allocate(total));
      const auto base = static_cast<int64_t>(reinterpret_cast<uintptr_t>(made.buffer_.data()));
      made.start_ = RoundUp(base + guard, alignment) + shift - base;
    } else {
      CF_ASSIGN_OR_RETURN(made.buffer_, target.AllocateFenced(total));
      total = made.buffer_.bytes();
      made.start_ = fence == RunPlan::Fence::kBefore ? shift : (total - bytes) / least * least;
    }
    if (guard > 0) {
      made.before_ = pattern.Cut(made.start_);
      made.after_ = pattern.Cut(total - made.start_ - bytes);
    }
    return made;
  }

  char* data() const { return static_cast<char*>(buffer_.data()) + start_; }
  int64_t bytes() const { return bytes_; }

  Status UploadGuards(Target& target) const {
    CF_RETURN_IF_ERROR(target.CopyIn(buffer_.data(), before_.data(), Size(before_)));
    return target.CopyIn(data() + bytes_, after_.data(), Size(after_));
  }
  // `block` over and over.
  Status Fill(Target& target, std::string_view block) const {
    for (int64_t at = 0; at < bytes_; at += Size(block)) {
      CF_RETURN_IF_ERROR(
          target.CopyIn(data() + at, block.data(), std::min(Size(block), bytes_ - at)));
    }
    return Status::Ok();
  }
  // Inverts every bit of some elements, at least one and about 1 byte in 128. `room`: kBlockBytes.
  Status Spoil(Target& target, SplitMix& random, char* room) const {
    for (int64_t at = 0; at < bytes_; at += kBlockBytes) {
      const int64_t bytes = std::min(kBlockBytes, bytes_ - at);
      CF_RETURN_IF_ERROR(target.CopyOut(room, data() + at, bytes));
      const auto step = [&](int64_t limit) {
        return static_cast<int64_t>(random.Next() % static_cast<uint64_t>(limit));
      };
      for (int64_t i = step(std::min(bytes, kSpoilStep)); i < bytes; i += 1 + step(kSpoilStep)) {
        const int64_t word = i / 8 * 8;  // whole elements, so that none is only a little wrong
        for (int64_t b = word; b < std::min(word + 8, bytes); ++b) room[b] = ~room[b];
      }
      CF_RETURN_IF_ERROR(target.CopyIn(data() + at, room, bytes));
    }
    return Status::Ok();
  }
  // Whether the data is still `contents`. `room`: kBlockBytes.
  Result<bool> Holds(Target& target, std::string_view contents, char* room) const {
    for (int64_t at = 0; at < bytes_; at += kBlockBytes) {
      const int64_t bytes = std::min(kBlockBytes, bytes_ - at);
      CF_RETURN_IF_ERROR(target.CopyOut(room, data() + at, bytes));
      if (!ParallelEqual(room, contents.data() + at, static_cast<size_t>(bytes))) return false;
    }
    return true;
  }
  // The first guard byte that changed, relative to the data's first byte; 0 hit: none.
  struct Damage {
    int64_t hits = 0;
    int64_t first = 0;
  };
  Result<Damage> GuardDamage(Target& target) const {
    Damage damage;
    const auto scan = [&](std::string_view guard, const char* device, int64_t offset) -> Status {
      std::string now(guard.size(), '\0');
      CF_RETURN_IF_ERROR(target.CopyOut(now.data(), device, Size(guard)));
      if (now == guard) return Status::Ok();
      for (size_t i = 0; i < now.size(); ++i) {
        if (now[i] == guard[i]) continue;
        if (damage.hits++ == 0) damage.first = offset + static_cast<int64_t>(i);
      }
      return Status::Ok();
    };
    CF_RETURN_IF_ERROR(scan(before_, static_cast<const char*>(buffer_.data()), -start_));
    CF_RETURN_IF_ERROR(scan(after_, data() + bytes_, bytes_));
    return damage;
  }

 private:
  static int64_t Size(std::string_view bytes) { return static_cast<int64_t>(bytes.size()); }

  DeviceBuffer buffer_;
  std::string_view before_, after_;
  int64_t start_ = 0;
  int64_t bytes_ = 0;
};

struct Buffers {
  explicit Buffers(uint64_t seed) : pattern(std::make_unique<Pattern>(seed)) {}
  std::unique_ptr<Pattern> pattern;
  std::vector<Guarded> inputs, outputs, scratch;
  std::vector<void*> input_pointers, output_pointers, scratch_pointers;
};

Result<Buffers> MakeBuffers(Target& target, const Executable& executable,
                            const GuardedRunRequest& request, bool guarded) {
  const OpSignature& signature = *request.signature;
  CF_CHECK(request.inputs.size() == signature.inputs.size()) << "one buffer per input";
  const RunPlan::Fence fence = guarded ? request.plan.fence : RunPlan::Fence::kNone;
  Buffers made(request.guard_seed);
  made.pattern->Reserve(
      2 * (signature.inputs.size() + signature.outputs.size() + executable.scratch_bytes().size()));
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const TensorSpec& spec = signature.inputs[i];
    int64_t alignment = 256;
    int64_t least = spec.alignment;
    int64_t shift = i < request.shifts.size() ? request.shifts[i] : 0;
    for (const Constraint& constraint : request.candidate->constraints) {
      if (constraint.kind != Constraint::Kind::kAligned ||
          constraint.index != static_cast<int>(i) || constraint.value <= 1) {
        continue;
      }
      if (constraint.value > kMaxAlignment) {
        return Status::Unsupported("a constraint of more than 4096 bytes of alignment");
      }
      alignment = std::lcm(alignment, constraint.value);
      least = std::lcm(least, constraint.value);
      shift = RoundUp(shift, constraint.value);
    }
    if (alignment > kMaxAlignment * 16) {
      return Status::Unsupported("alignment constraints with too large a common multiple");
    }
    shift = RoundUp(shift, spec.alignment);
    CF_ASSIGN_OR_RETURN(Guarded buffer,
                        Guarded::Make(target, spec.StorageBytes(), guarded ? GuardFor(spec) : 0,
                                      {alignment, shift, least}, fence, *made.pattern));
    CF_CHECK(static_cast<int64_t>(request.inputs[i].size()) == buffer.bytes()) << "input size";
    if (buffer.bytes() > 0) CF_RETURN_IF_ERROR(buffer.Fill(target, request.inputs[i]));
    made.inputs.push_back(std::move(buffer));
  }
  std::string poison;
  const auto poisoned = [&](int64_t bytes, int64_t guard, int64_t least) -> Result<Guarded> {
    CF_ASSIGN_OR_RETURN(Guarded buffer, Guarded::Make(target, bytes, guarded ? guard : 0,
                                                      {.least = least}, fence, *made.pattern));
    poison.resize(std::max(poison.size(), static_cast<size_t>(std::min(bytes, kBlockBytes))),
                  static_cast<char>(request.plan.poison));
    CF_RETURN_IF_ERROR(buffer.Fill(target, poison));
    return buffer;
  };
  for (size_t o = 0; o < signature.outputs.size(); ++o) {
    const TensorSpec& spec = signature.output_spec(o);
    CF_ASSIGN_OR_RETURN(Guarded buffer,
                        poisoned(spec.StorageBytes(), GuardFor(spec), kHostAlignment));
    made.outputs.push_back(std::move(buffer));
  }
  for (const int64_t bytes : executable.scratch_bytes()) {
    CF_ASSIGN_OR_RETURN(Guarded buffer, poisoned(bytes, kGuardBytes, 256));
    made.scratch.push_back(std::move(buffer));
  }
  const auto finish = [&](std::vector<Guarded>& group, std::vector<void*>& pointers) -> Status {
    for (Guarded& buffer : group) {
      if (guarded) CF_RETURN_IF_ERROR(buffer.UploadGuards(target));
      pointers.push_back(buffer.data());
    }
    return Status::Ok();
  };
  CF_RETURN_IF_ERROR(finish(made.inputs, made.input_pointers));
  CF_RETURN_IF_ERROR(finish(made.outputs, made.output_pointers));
  CF_RETURN_IF_ERROR(finish(made.scratch, made.scratch_pointers));
  CF_RETURN_IF_ERROR(target.Synchronize());
  return made;
}

GuardedRunResult DeviceFailure(VerdictKind kind, const Status& status) {
  GuardedRunResult result;
  if (status.code() == StatusCode::kMemoryFault) kind = VerdictKind::kMemoryFault;
  result.verdict = {
      kind, "the device reports: " + status.message(), {{"error", status.ToString()}}};
  result.device_error = true;
  return result;
}

Verdict GuardHit(const std::string& name, const Guarded::Damage& damage, int64_t bytes) {
  return {VerdictKind::kMemoryFault,
          "wrote outside " + name + ": " + std::to_string(damage.hits) +
              " guard bytes changed, the first at byte " + std::to_string(damage.first) +
              " of a buffer of " + std::to_string(bytes),
          {{"buffer", name},
           {"guard_bytes_hit", damage.hits},
           {"first_byte", damage.first},
           {"buffer_bytes", bytes}}};
}

// `work` here, or on a thread of its own.
Status Run(bool new_thread, const std::function<Status()>& work) {
  if (!new_thread) return work();
  Status status;
  std::thread([&] { status = work(); }).join();
  return status;
}

}  // namespace

Result<GuardedRunResult> RunGuarded(Target& target, const Executable& executable,
                                    const GuardedRunRequest& request) {
  CF_CHECK(request.outputs.size() == request.signature->outputs.size()) << "one place per output";
  CF_ASSIGN_OR_RETURN(Buffers buffers, MakeBuffers(target, executable, request, true));
  const auto room = std::make_unique_for_overwrite<char[]>(kBlockBytes);
  for (int run = 0; run < (request.plan.again ? 2 : 1); ++run) {
    SplitMix random(request.guard_seed);
    for (const Guarded& output : buffers.outputs) {
      const Status spoilt = run == 0 ? Status::Ok() : output.Spoil(target, random, room.get());
      if (!spoilt.ok()) return DeviceFailure(VerdictKind::kCrashed, spoilt);
    }
    const bool new_thread =
        request.signature->device == DeviceType::kCpu && (request.plan.new_thread || run > 0);
    const Status launched = Run(new_thread, [&] {
      return executable.Launch(buffers.input_pointers, buffers.output_pointers,
                               buffers.scratch_pointers, target.launch_context());
    });
    if (!launched.ok()) return DeviceFailure(VerdictKind::kLaunchError, launched);
    const Status finished = target.Synchronize();
    if (!finished.ok()) return DeviceFailure(VerdictKind::kCrashed, finished);
  }

  GuardedRunResult result;
  const auto guards = [&](const std::vector<Guarded>& group, const char* what) -> Status {
    for (size_t i = 0; i < group.size() && result.verdict.accepted(); ++i) {
      CF_ASSIGN_OR_RETURN(const Guarded::Damage damage, group[i].GuardDamage(target));
      if (damage.hits == 0) continue;
      result.verdict = GuardHit(what + (" " + std::to_string(i)), damage, group[i].bytes());
    }
    return Status::Ok();
  };
  const auto data = [&]() -> Status {
    for (size_t i = 0; i < buffers.inputs.size(); ++i) {
      CF_ASSIGN_OR_RETURN(const bool same,
                          buffers.inputs[i].Holds(target, request.inputs[i], room.get()));
      if (same) continue;
      const std::string name = "input " + std::to_string(i);
      result.verdict = {VerdictKind::kModifiedInput, "wrote into " + name, {{"buffer", name}}};
      return Status::Ok();
    }
    for (size_t o = 0; o < buffers.outputs.size(); ++o) {
      const Guarded& output = buffers.outputs[o];
      CF_RETURN_IF_ERROR(target.CopyOut(request.outputs[o], output.data(), output.bytes()));
    }
    return Status::Ok();
  };
  Status copied = guards(buffers.inputs, "input");
  if (copied.ok()) copied = guards(buffers.outputs, "output");
  if (copied.ok()) copied = guards(buffers.scratch, "scratch buffer");
  if (copied.ok() && result.verdict.accepted()) copied = data();
  if (!copied.ok()) return DeviceFailure(VerdictKind::kCrashed, copied);
  return result;
}

Result<double> TimeRuns(Target& target, const Executable& executable,
                        const GuardedRunRequest& request, const TimingPlan& plan) {
  if (plan.samples < 1) return Status::InvalidArgument("no samples were asked for");
  CF_ASSIGN_OR_RETURN(Buffers buffers, MakeBuffers(target, executable, request, false));
  const auto enqueue = [&] {
    return executable.Launch(buffers.input_pointers, buffers.output_pointers,
                             buffers.scratch_pointers, target.launch_context());
  };
  std::vector<double> times;
  double total = 0;
  for (int i = 0; i < plan.samples; ++i) {
    CF_ASSIGN_OR_RETURN(const double nanoseconds, target.TimeOnce(enqueue));
    times.push_back(nanoseconds);
    total += nanoseconds;
    if (i + 1 >= plan.least && total >= plan.total_ns) break;
    if (i == 1 && std::min(times[0], times[1]) > plan.abandon_ns) break;
  }
  auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

Result<Json> ProfileRuns(Target& target, const Executable& executable,
                         const GuardedRunRequest& request, int tier) {
  CF_ASSIGN_OR_RETURN(Buffers buffers, MakeBuffers(target, executable, request, false));
  const auto enqueue = [&] {
    return executable.Launch(buffers.input_pointers, buffers.output_pointers,
                             buffers.scratch_pointers, target.launch_context());
  };
  return target.Profile(executable, enqueue, tier);
}

}  // namespace cudaforge
