#include "verify/worker_region_verifier.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/clock.h"
#include "base/sha256.h"
#include "measure/warm_inputs.h"
#include "verify/impossible_time.h"

namespace cudaforge {
namespace {

constexpr int64_t kTwoSlotsBytes = int64_t{256} << 20;  // two slots for inputs up to this size
constexpr int64_t kMaxAlignment = 4096;
// The number of runs with random splits on a CPU, for inputs and outputs of at most kRaceBytes
// bytes.
constexpr int kRaceRuns = 8;
constexpr int64_t kRaceBytes = int64_t{32} << 20;
constexpr int64_t kKeptScratch = int64_t{1} << 20;  // always kept for a buffer
constexpr int64_t kMuchScratch = int64_t{1} << 30;  // more than any small region needs
constexpr size_t kTurns = 6;                        // sets with a fixed placement: see PlacementOf
constexpr int kKilledRuns = 3;  // repeats of a run whose process was killed by the system
// The minimum alignment of PyTorch's allocators.
constexpr int64_t kHostAlignment = 64;
constexpr int64_t kDeviceAlignment = 256;

std::string Bytes(int64_t bytes) { return std::to_string(bytes); }

Verdict Refused(std::string message) {
  return {VerdictKind::kRefused, std::move(message), Json::object()};
}

Verdict Outside(const std::string& name, const FillDamage& damage, int64_t bytes) {
  return {VerdictKind::kMemoryFault,
          "wrote outside " + name + ": " + Bytes(damage.changed) +
              " bytes around it changed, the first at byte " + Bytes(damage.first) +
              " of a buffer of " + Bytes(bytes),
          {{"buffer", name},
           {"bytes_hit", damage.changed},
           {"first_byte", damage.first},
           {"buffer_bytes", bytes}}};
}

// kStart detects reads before a buffer, kEnd reads after it, kInside use of more alignment than
// promised. Turns 2 and 3 are both inside: see PlacedBuffer::Place.
Placement PlacementOf(uint64_t turn) {
  static constexpr Placement kPlacements[] = {Placement::kStart,  Placement::kEnd,
                                              Placement::kInside, Placement::kInside,
                                              Placement::kEnd,    Placement::kStart};
  return kPlacements[turn % std::size(kPlacements)];
}

// Additional runs of a set with the splits of machines with these numbers of threads, in rotation.
constexpr int kServedRuns = 2;
constexpr int kThreads[] = {3, 4, 8, 16, 64, 2};
constexpr int64_t kApartBytes = int64_t{16} << 20;  // of outputs and scratch buffers

// Races only show with concurrent parts, and not always.
RangeSplit SplitOf(size_t set) {
  static constexpr RangeSplit kSplits[] = {RangeSplit::kServed, RangeSplit::kRandom,
                                           RangeSplit::kItems,  RangeSplit::kRandom,
                                           RangeSplit::kWhole,  RangeSplit::kRandom};
  return kSplits[set % std::size(kSplits)];
}

std::vector<void*> PointersOf(const std::vector<PlacedBuffer>& buffers, size_t count) {
  std::vector<void*> pointers;
  for (size_t i = 0; i < count; ++i) pointers.push_back(buffers[i].data());
  return pointers;
}

}  // namespace

Result<std::unique_ptr<WorkerRegionVerifier>> WorkerRegionVerifier::Create(
    const OpSignature& region, Target& target, DeviceMemory& memory, CandidateRunner& worker,
    RegionReference& reference, uint64_t seed, double seconds) {
  std::unique_ptr<WorkerRegionVerifier> made(
      new WorkerRegionVerifier(region, target, memory, worker, reference, seed));
  const Stopwatch watch(&made->spent_.inputs);
  CF_RETURN_IF_ERROR(made->Allocate());
  CF_RETURN_IF_ERROR(made->Prepare(seconds));
  return made;
}

Status WorkerRegionVerifier::Prepare(double seconds) {
  std::vector<PlacedBuffer>& inputs = slots_.back().inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    CF_RETURN_IF_ERROR(inputs[i].Place(region_.inputs[i].StorageBytes(), kDeviceAlignment,
                                       Placement::kStart, Random(0, 100 + i)));
  }
  const Status prepared = reference_.Prepare(PointersOf(inputs, inputs.size()), seconds);
  return prepared.code() == StatusCode::kNoMemory ? NoRoom(prepared.message()) : prepared;
}

Status WorkerRegionVerifier::NoRoom(const std::string& reason) const {
  const int64_t inputs = input_bytes_ * static_cast<int64_t>(slots_.size());
  const int64_t outputs = output_bytes_;
  const Result<int64_t> free = target_.FreeBytes();
  return Status::NoMemory("too little memory to verify this region now: it needs " +
                          Bytes(inputs + 2 * outputs) + " bytes (inputs " + Bytes(inputs) +
                          ", outputs " + Bytes(outputs) + ", ATen's answer " + Bytes(outputs) +
                          ") and working memory of ATen; " + Bytes(free_) + " were free" +
                          (free.ok() ? ", " + Bytes(*free) + " are now" : std::string()) +
                          (reason.empty() ? std::string() : ": " + reason));
}

Status WorkerRegionVerifier::Allocate() {
  for (const TensorSpec& spec : region_.inputs) input_bytes_ += spec.StorageBytes();
  for (size_t o = 0; o < region_.outputs.size(); ++o) {
    output_bytes_ += region_.output_spec(o).StorageBytes();
  }
  slots_.resize(input_bytes_ <= kTwoSlotsBytes && set_count() > 1 ? 2 : 1);
  CF_ASSIGN_OR_RETURN(free_, target_.FreeBytes());
  const auto make = [&](int64_t bytes, std::vector<PlacedBuffer>* to) -> Status {
    CF_ASSIGN_OR_RETURN(PlacedBuffer buffer, PlacedBuffer::Make(target_, memory_, worker_, bytes));
    to->push_back(std::move(buffer));
    return Status::Ok();
  };
  const auto map = [](std::vector<PlacedBuffer>& buffers, bool writable) -> Status {
    for (PlacedBuffer& buffer : buffers) CF_RETURN_IF_ERROR(buffer.Map(writable));
    return Status::Ok();
  };
  const auto allocate = [&]() -> Status {
    for (Slot& slot : slots_) {
      for (const TensorSpec& spec : region_.inputs) {
        CF_RETURN_IF_ERROR(make(spec.StorageBytes(), &slot.inputs));
      }
    }
    for (size_t o = 0; o < region_.outputs.size(); ++o) {
      CF_RETURN_IF_ERROR(make(region_.output_spec(o).StorageBytes(), &outputs_));
    }
    // Maps each buffer twice: outputs before and after the inputs.
    for (Slot& slot : slots_) CF_RETURN_IF_ERROR(map(slot.inputs, false));
    CF_RETURN_IF_ERROR(map(outputs_, true));
    CF_RETURN_IF_ERROR(map(outputs_, true));
    for (Slot& slot : slots_) CF_RETURN_IF_ERROR(map(slot.inputs, false));
    return Status::Ok();
  };
  Status allocated = allocate();
  return allocated.code() == StatusCode::kNoMemory ? NoRoom(allocated.message()) : allocated;
}

uint64_t WorkerRegionVerifier::Random(size_t set, uint64_t what) const {
  // A fill pattern reveals its seed to a candidate, so no other number may follow from that.
  return Sha256Number(std::to_string(seed_) + "/" + std::to_string(set) + "/" +
                      std::to_string(what) + "/" + std::to_string(run_));
}

Result<Verdict> WorkerRegionVerifier::Load(const std::string& binary, const Candidate& candidate) {
  const Stopwatch watch(&spent_.run);
  input_alignments_.clear();
  for (size_t i = 0; i < region_.inputs.size(); ++i) {
    int64_t alignment = region_.inputs[i].alignment;
    for (const Constraint& constraint : candidate.constraints) {
      if (constraint.kind != Constraint::Kind::kAligned ||
          constraint.index != static_cast<int>(i) || constraint.value <= 1) {
        continue;
      }
      if (constraint.value > kMaxAlignment) {
        return Refused("a constraint of more than 4096 bytes of alignment");
      }
      alignment = std::lcm(alignment, constraint.value);
    }
    if (alignment > kMaxAlignment) {
      return Refused("constraints of more than 4096 bytes of alignment in all");
    }
    input_alignments_.push_back(alignment);
  }
  CF_ASSIGN_OR_RETURN(LoadedKernel loaded, worker_.Load(binary, candidate, region_));
  if (!loaded.verdict.accepted()) return std::move(loaded.verdict);
  scratch_bytes_ = std::move(loaded.scratch_bytes);
  ran_ = false;
  // Returns oversized buffers, which would be filled and read in every run.
  const auto suits = [&](size_t i) {
    const int64_t capacity = scratch_[i].capacity(), bytes = scratch_bytes_[i];
    return capacity >= bytes && (capacity <= kKeptScratch || capacity / 4 <= bytes);
  };
  size_t kept = 0;
  while (kept < std::min(scratch_.size(), scratch_bytes_.size()) && suits(kept)) ++kept;
  scratch_.erase(scratch_.begin() + static_cast<std::ptrdiff_t>(kept), scratch_.end());
  for (size_t i = kept; i < scratch_bytes_.size(); ++i) {
    const int64_t bytes = scratch_bytes_[i];
    Result<PlacedBuffer> buffer = PlacedBuffer::Make(target_, memory_, worker_, bytes);
    if (buffer.status().code() == StatusCode::kNoMemory) {
      const std::string message = "no memory is free for a scratch buffer of " + Bytes(bytes);
      if (bytes > std::max(kMuchScratch, 4 * (input_bytes_ + output_bytes_)))
        return Refused(message + " bytes");
      return NoRoom(message + " bytes more");
    }
    CF_RETURN_IF_ERROR(buffer.status());
    for (int address = 0; address < 2; ++address) CF_RETURN_IF_ERROR(buffer->Map(true));
    scratch_.push_back(*std::move(buffer));
  }
  unprepared_ = scratch_bytes_.size() - candidate.plan.prepared_bytes.size();
  for (size_t i = unprepared_; i < scratch_bytes_.size(); ++i) {
    CF_RETURN_IF_ERROR(scratch_[i].MapForReading());
  }
  return Verdict();
}

Status WorkerRegionVerifier::Draw(size_t set) {
  const Stopwatch watch(&spent_.inputs);
  Slot& slot = SlotOf(set);
  bool ready = slot.set == set;
  for (size_t i = 0; ready && i < slot.inputs.size(); ++i) {
    ready = slot.inputs[i].alignment() % input_alignments_[i] == 0;
  }
  if (ready) return Status::Ok();
  slot.set.reset();
  const Placement placement = PlacementOf(set < kTurns ? set : Random(set, 1));
  for (size_t i = 0; i < slot.inputs.size(); ++i) {
    CF_RETURN_IF_ERROR(slot.inputs[i].Place(region_.inputs[i].StorageBytes(), input_alignments_[i],
                                            placement, Random(set, 100 + i)));
  }
  CF_RETURN_IF_ERROR(reference_.Draw(set, PointersOf(slot.inputs, slot.inputs.size())));
  slot.set = set;
  return Status::Ok();
}

Status WorkerRegionVerifier::Poison(size_t set) {
  const Stopwatch watch(&spent_.run);
  static constexpr FillPattern kPatterns[] = {FillPattern::kNan, FillPattern::kNumbers,
                                              FillPattern::kOnes, FillPattern::kZero,
                                              FillPattern::kBytes};
  const FillPattern pattern = kPatterns[set < 4 ? set : Random(set, 2) % 5];
  // In the first kTurns sets the placement differs from the inputs'; after that it is random.
  const Placement placement = PlacementOf(set < kTurns ? set + 2 : Random(set, 3));
  const int64_t alignment = region_.device == DeviceType::kCpu ? kHostAlignment : kDeviceAlignment;
  const auto poison = [&](PlacedBuffer& buffer, int64_t bytes, int64_t aligned, DType dtype,
                          uint64_t use) -> Status {
    CF_RETURN_IF_ERROR(buffer.Place(bytes, aligned, placement, Random(set, use)));
    return memory_.Fill(buffer.data(), bytes, pattern, Random(set, use + 1000), dtype);
  };
  for (size_t o = 0; o < outputs_.size(); ++o) {
    const TensorSpec& spec = region_.output_spec(o);
    CF_RETURN_IF_ERROR(poison(outputs_[o], spec.StorageBytes(), alignment, spec.dtype, 200 + o));
  }
  for (size_t i = 0; i < scratch_bytes_.size(); ++i) {
    CF_RETURN_IF_ERROR(poison(scratch_[i], scratch_bytes_[i], 256, DType::kFloat32, 300 + i));
  }
  return Status::Ok();
}

LaunchRequest WorkerRegionVerifier::LaunchOn(size_t set, Use use) {
  const uint64_t address = Random(set, 4);
  LaunchRequest launch;
  for (const PlacedBuffer& input : SlotOf(set).inputs) {
    launch.inputs.push_back(input.placed(address));
  }
  for (const PlacedBuffer& output : outputs_) launch.outputs.push_back(output.placed(address >> 8));
  for (size_t i = 0; i < scratch_bytes_.size(); ++i) {
    const bool read = use == Use::kRead && i >= unprepared_;
    launch.scratch.push_back(read ? scratch_[i].placed_for_reading(address >> 16)
                                  : scratch_[i].placed(address >> 16));
  }
  launch.prepare = use == Use::kPrepare;
  launch.split = split_;
  launch.threads = threads_;
  launch.seed = Random(set, 5);
  return launch;
}

Result<Verdict> WorkerRegionVerifier::Launch(size_t set) {
  const Stopwatch watch(&spent_.run);
  CF_RETURN_IF_ERROR(target_.Synchronize());
  return worker_.Launch(LaunchOn(set, Use::kRead));
}

Result<Verdict> WorkerRegionVerifier::PrepareOperands(size_t set) {
  if (unprepared_ == scratch_bytes_.size()) return Verdict();
  const Stopwatch watch(&spent_.run);
  CF_RETURN_IF_ERROR(target_.Synchronize());
  CF_ASSIGN_OR_RETURN(Verdict verdict, worker_.Launch(LaunchOn(set, Use::kPrepare)));
  // In service other kernels use the scratch memory in between.
  for (size_t i = 0; i < unprepared_; ++i) {
    CF_RETURN_IF_ERROR(memory_.Fill(scratch_[i].data(), scratch_bytes_[i], FillPattern::kBytes,
                                    Random(set, 400 + i)));
  }
  return verdict;
}

Result<Verdict> WorkerRegionVerifier::Examine(size_t set) {
  const Stopwatch watch(&spent_.compare);
  const auto around = [](const std::vector<PlacedBuffer>& buffers, size_t count,
                         const char* what) -> Result<Verdict> {
    for (size_t i = 0; i < count; ++i) {
      CF_ASSIGN_OR_RETURN(const FillDamage damage, buffers[i].Around());
      if (damage.changed > 0) {
        return Outside(what + (" " + std::to_string(i)), damage, buffers[i].bytes());
      }
    }
    return Verdict();
  };
  CF_ASSIGN_OR_RETURN(Verdict verdict, around(outputs_, outputs_.size(), "output"));
  if (!verdict.accepted()) return verdict;
  CF_ASSIGN_OR_RETURN(verdict,
                      around(scratch_, scratch_bytes_.size(), "scratch or prepared buffer"));
  if (!verdict.accepted()) return verdict;
  const std::vector<PlacedBuffer>& inputs = SlotOf(set).inputs;
  return reference_.Check(set, PointersOf(inputs, inputs.size()),
                          PointersOf(outputs_, outputs_.size()));
}

Result<Verdict> WorkerRegionVerifier::RunOnce(size_t set) {
  ++run_;
  for (int killed = 0;;) {
    CF_RETURN_IF_ERROR(Poison(set));
    Result<Verdict> launched = PrepareOperands(set);
    if (launched.ok() && launched->accepted()) launched = Launch(set);
    if (launched.ok()) return launched->accepted() ? Examine(set) : launched;
    if (launched.status().code() != StatusCode::kUnavailable || ++killed == kKilledRuns) {
      return launched;
    }
  }
}

void WorkerRegionVerifier::ChooseSplit(size_t set, int run, int runs) {
  split_ = SplitOf(set);
  threads_ = 0;
  const auto turn = [&](size_t n) { threads_ = kThreads[n % std::size(kThreads)]; };
  if (runs > kServedRuns && run < kServedRuns) {
    split_ = RangeSplit::kServed;
    turn(set / 2 * kServedRuns + static_cast<size_t>(run));
  } else if (split_ == RangeSplit::kServed && set > 0) {
    turn(set / 6);
  }
  const bool apart = runs > 1 ? run == kServedRuns : set % 6 == 3;
  const int64_t scratch = std::accumulate(scratch_bytes_.begin(), scratch_bytes_.end(), int64_t{0});
  if (apart && output_bytes_ + scratch <= kApartBytes) split_ = RangeSplit::kApart;
}

Result<Verdict> WorkerRegionVerifier::Run(size_t set) {
  CF_RETURN_IF_ERROR(Draw(set));
  const bool races = region_.device == DeviceType::kCpu && SplitOf(set) == RangeSplit::kRandom;
  const int runs = races && input_bytes_ + output_bytes_ <= kRaceBytes ? kRaceRuns : 1;
  Verdict verdict;
  for (int run = 0; run < runs && verdict.accepted(); ++run) {
    ChooseSplit(set, run, runs);
    CF_ASSIGN_OR_RETURN(verdict, RunOnce(set));
  }
  ChooseSplit(0, 0, 1);
  if (!verdict.accepted()) return verdict;
  if (set != 0 || !std::exchange(ran_, true)) return verdict;
  return RunAgain(set);
}

// Runs it on its previous output. It must not rely on old contents, even if nearly all are correct,
// or on scratch buffers that it knows.
Result<Verdict> WorkerRegionVerifier::RunAgain(size_t set) {
  for (size_t o = 0; o < outputs_.size(); ++o) {
    CF_RETURN_IF_ERROR(memory_.Spoil(outputs_[o].data(), outputs_[o].bytes(), Random(set, 6 + o)));
  }
  CF_ASSIGN_OR_RETURN(Verdict verdict, Launch(set));
  if (!verdict.accepted()) return verdict;
  return Examine(set);
}

Result<RegionVerifier::Timed> WorkerRegionVerifier::Time(const TimingPlan& plan) {
  CF_RETURN_IF_ERROR(Draw(0));
  CF_RETURN_IF_ERROR(Poison(0));
  CF_RETURN_IF_ERROR(target_.Synchronize());
  Timed timed;
  const Result<double> ns = [&] {
    const Stopwatch watch(&spent_.run);
    return worker_.Time({LaunchOn(0, Use::kTime)}, plan, WarmInputs(region_, target_.arch()),
                        &timed.prepare_ns);
  }();
  if (ns.status().code() == StatusCode::kUnsupported) {
    timed.verdict = Refused(ns.status().message());
    return timed;
  }
  CF_ASSIGN_OR_RETURN(timed.ns, ns);
  timed.verdict = JudgeTime(region_, target_.arch(), timed.ns);
  if (!timed.verdict.accepted()) return timed;
  CF_ASSIGN_OR_RETURN(timed.verdict, Examine(0));
  if (!timed.verdict.accepted()) return timed;
  // Checks that old contents of its scratch buffers do not let it skip work.
  CF_ASSIGN_OR_RETURN(timed.verdict, RunAgain(0));
  return timed;
}

Result<Json> WorkerRegionVerifier::Profile(int tier) {
  CF_RETURN_IF_ERROR(Draw(0));
  CF_RETURN_IF_ERROR(Poison(0));
  CF_RETURN_IF_ERROR(target_.Synchronize());
  const Stopwatch watch(&spent_.run);
  return worker_.Profile(LaunchOn(0, Use::kTime), tier);
}

}  // namespace cudaforge
