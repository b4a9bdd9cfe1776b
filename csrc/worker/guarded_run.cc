#include "worker/guarded_run.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "verify/random.h"

namespace cudaforge {
namespace {

constexpr int64_t kGuardBytes = 128 << 10;
constexpr int64_t kMaxGuardBytes = 16 << 20;
constexpr int64_t kMaxAlignment = 4096;

int64_t RoundUp(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

int64_t GuardFor(const TensorSpec& spec) {
  const int64_t row = spec.sizes.empty() ? 1 : spec.sizes.back();
  const int64_t bytes = std::min(row, kMaxGuardBytes) * DTypeSize(spec.dtype);
  return RoundUp(std::clamp(bytes, kGuardBytes, kMaxGuardBytes), 4096);
}

// A buffer between two guards. `image` is what the whole allocation should hold where the candidate
// must not write.
class Guarded {
 public:
  // The data starts `shift` bytes after a multiple of `alignment`.
  static Result<Guarded> Make(Target& target, int64_t bytes, int64_t guard, int64_t alignment,
                              int64_t shift, SplitMix& random) {
    Guarded made;
    made.bytes_ = bytes;
    const int64_t total = RoundUp(guard + alignment + shift + bytes + guard, 8);
    CF_ASSIGN_OR_RETURN(made.buffer_, target.Allocate(total));
    const auto base = static_cast<int64_t>(reinterpret_cast<uintptr_t>(made.buffer_.data()));
    made.start_ = RoundUp(base + guard, alignment) + shift - base;
    made.image_.resize(static_cast<size_t>(total));
    for (size_t i = 0; i < made.image_.size(); i += 8) {
      const uint64_t bits = random.Next();
      std::memcpy(made.image_.data() + i, &bits, 8);
    }
    return made;
  }

  void* data() const { return static_cast<char*>(buffer_.data()) + start_; }
  char* image_data() { return image_.data() + start_; }
  int64_t bytes() const { return bytes_; }
  Status Upload(Target& target) {
    return target.CopyIn(buffer_.data(), image_.data(), static_cast<int64_t>(image_.size()));
  }
  Result<std::string> Download(Target& target) const {
    std::string now(image_.size(), '\0');
    CF_RETURN_IF_ERROR(
        target.CopyOut(now.data(), buffer_.data(), static_cast<int64_t>(now.size())));
    return now;
  }
  std::string_view Data(const std::string& now) const {
    return std::string_view(now).substr(static_cast<size_t>(start_), static_cast<size_t>(bytes_));
  }
  bool SameData(const std::string& now) const { return Data(now) == Data(image_); }
  // The first guard byte that changed, relative to the data's first byte; 0 hit: none.
  struct Damage {
    int64_t hits = 0;
    int64_t first = 0;
  };
  Damage GuardDamage(const std::string& now) const {
    Damage damage;
    const auto scan = [&](size_t begin, size_t end) {
      if (std::memcmp(now.data() + begin, image_.data() + begin, end - begin) == 0) return;
      for (size_t i = begin; i < end; ++i) {
        if (now[i] == image_[i]) continue;
        if (damage.hits++ == 0) damage.first = static_cast<int64_t>(i) - start_;
      }
    };
    scan(0, static_cast<size_t>(start_));
    scan(static_cast<size_t>(start_ + bytes_), image_.size());
    return damage;
  }

 private:
  DeviceBuffer buffer_;
  std::string image_;
  int64_t start_ = 0;
  int64_t bytes_ = 0;
};

struct Buffers {
  std::vector<Guarded> inputs, outputs, scratch;
  std::vector<void*> input_pointers, output_pointers, scratch_pointers;
};

Result<Buffers> MakeBuffers(Target& target, const Executable& executable,
                            const GuardedRunRequest& request, bool guarded) {
  const OpSignature& signature = *request.signature;
  CF_CHECK(request.inputs.size() == signature.inputs.size()) << "one buffer per input";
  SplitMix random(request.guard_seed);
  Buffers made;
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const TensorSpec& spec = signature.inputs[i];
    int64_t alignment = 256;
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
      shift = RoundUp(shift, constraint.value);
    }
    shift = RoundUp(shift, spec.alignment);
    CF_ASSIGN_OR_RETURN(Guarded buffer,
                        Guarded::Make(target, spec.StorageBytes(), guarded ? GuardFor(spec) : 0,
                                      alignment, shift, random));
    CF_CHECK(static_cast<int64_t>(request.inputs[i].size()) == buffer.bytes()) << "input size";
    std::copy(request.inputs[i].begin(), request.inputs[i].end(), buffer.image_data());
    made.inputs.push_back(std::move(buffer));
  }
  const auto poisoned = [&](int64_t bytes, int64_t guard) -> Result<Guarded> {
    CF_ASSIGN_OR_RETURN(Guarded buffer,
                        Guarded::Make(target, bytes, guarded ? guard : 0, 256, 0, random));
    std::memset(buffer.image_data(), request.poison, static_cast<size_t>(bytes));
    return buffer;
  };
  for (size_t o = 0; o < signature.outputs.size(); ++o) {
    const TensorSpec& spec = signature.output_spec(o);
    CF_ASSIGN_OR_RETURN(Guarded buffer, poisoned(spec.StorageBytes(), GuardFor(spec)));
    made.outputs.push_back(std::move(buffer));
  }
  for (const int64_t bytes : executable.scratch_bytes()) {
    CF_ASSIGN_OR_RETURN(Guarded buffer, poisoned(bytes, kGuardBytes));
    made.scratch.push_back(std::move(buffer));
  }
  const auto finish = [&](std::vector<Guarded>& group, std::vector<void*>& pointers) -> Status {
    for (Guarded& buffer : group) {
      CF_RETURN_IF_ERROR(buffer.Upload(target));
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
  for (std::string_view word :
       {"illegal address", "illegal memory", "misaligned", "ILLEGAL_ADDRESS", "MISALIGNED"}) {
    if (status.message().find(word) != std::string::npos) kind = VerdictKind::kMemoryFault;
  }
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

}  // namespace

Result<GuardedRunResult> RunGuarded(Target& target, const Executable& executable,
                                    const GuardedRunRequest& request) {
  CF_ASSIGN_OR_RETURN(Buffers buffers, MakeBuffers(target, executable, request, true));
  const Status launched = executable.Launch(buffers.input_pointers, buffers.output_pointers,
                                            buffers.scratch_pointers, target.launch_context());
  if (!launched.ok()) return DeviceFailure(VerdictKind::kLaunchError, launched);
  const Status finished = target.Synchronize();
  if (!finished.ok()) return DeviceFailure(VerdictKind::kCrashed, finished);

  GuardedRunResult result;
  const auto inspect = [&](const std::vector<Guarded>& group, const char* what) -> Status {
    for (size_t i = 0; i < group.size(); ++i) {
      CF_ASSIGN_OR_RETURN(const std::string now, group[i].Download(target));
      const std::string name = what + (" " + std::to_string(i));
      const Guarded::Damage damage = group[i].GuardDamage(now);
      if (damage.hits > 0 && result.verdict.kind != VerdictKind::kMemoryFault) {
        result.verdict = GuardHit(name, damage, group[i].bytes());
      }
      if (&group == &buffers.inputs && !group[i].SameData(now) && result.verdict.accepted()) {
        result.verdict = {VerdictKind::kModifiedInput, "wrote into " + name, {{"buffer", name}}};
      }
      if (&group == &buffers.outputs) result.outputs.emplace_back(group[i].Data(now));
    }
    return Status::Ok();
  };
  Status copied = inspect(buffers.inputs, "input");
  if (copied.ok()) copied = inspect(buffers.outputs, "output");
  if (copied.ok()) copied = inspect(buffers.scratch, "scratch buffer");
  if (!copied.ok()) return DeviceFailure(VerdictKind::kCrashed, copied);
  if (!result.verdict.accepted()) result.outputs.clear();
  return result;
}

Result<double> TimeRuns(Target& target, const Executable& executable,
                        const GuardedRunRequest& request, int samples) {
  CF_ASSIGN_OR_RETURN(Buffers buffers, MakeBuffers(target, executable, request, false));
  const auto enqueue = [&] {
    return executable.Launch(buffers.input_pointers, buffers.output_pointers,
                             buffers.scratch_pointers, target.launch_context());
  };
  std::vector<double> times;
  for (int i = 0; i < samples; ++i) {
    CF_ASSIGN_OR_RETURN(const double nanoseconds, target.TimeOnce(enqueue));
    times.push_back(nanoseconds);
  }
  if (times.empty()) return Status::InvalidArgument("no samples were asked for");
  auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

}  // namespace cudaforge
