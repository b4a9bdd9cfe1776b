// WorkerRegionVerifier: runs candidates in a worker, on memory that this process owns. The worker
// maps inputs read-only, and outputs and scratch buffers writable. It cannot reach answers or
// seeds. Without torch.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernel/candidate.h"
#include "signature/op_signature.h"
#include "target/target.h"
#include "verify/device_memory.h"
#include "verify/placed_buffer.h"
#include "verify/region_reference.h"
#include "verify/region_verifier.h"
#include "worker/worker_client.h"

namespace cudaforge {

class WorkerRegionVerifier : public RegionVerifier {
 public:
  // Allocates inputs and outputs, and prepares `reference`, with its errors. All arguments must
  // outlive it; `seed` is secret. kNoMemory, with the bytes needed, by part, and the bytes free.
  static Result<std::unique_ptr<WorkerRegionVerifier>> Create(
      const OpSignature& region, Target& target, DeviceMemory& memory, CandidateRunner& worker,
      RegionReference& reference, uint64_t seed,
      double seconds = std::numeric_limits<double>::infinity());

  size_t set_count() const override { return reference_.set_count(); }
  std::string set_name(size_t set) const override { return reference_.set_name(set); }
  Result<Verdict> Load(const std::string& binary, const Candidate& candidate) override;
  Result<Verdict> Run(size_t set) override;
  Result<Timed> Time(const TimingPlan& plan) override;
  Result<Json> Profile(int tier) override;
  PhaseSeconds spent() const override { return spent_; }
  Json Report() const override { return reference_.Report(); }

 private:
  // The inputs that hold one set.
  struct Slot {
    std::optional<size_t> set;
    std::vector<PlacedBuffer> inputs;
  };

  WorkerRegionVerifier(const OpSignature& region, Target& target, DeviceMemory& memory,
                       CandidateRunner& worker, RegionReference& reference, uint64_t seed)
      : region_(region),
        target_(target),
        memory_(memory),
        worker_(worker),
        reference_(reference),
        seed_(seed) {}

  Status Allocate();
  Status Prepare(double seconds);
  Status NoRoom(const std::string& reason) const;
  Slot& SlotOf(size_t set) { return slots_[set == 0 ? 0 : slots_.size() - 1]; }
  // Chooses how run `run` of `runs` on this set is split into ranges, on a CPU.
  void ChooseSplit(size_t set, int run, int runs);
  // Draws set `set` into its slot, unless it is there at addresses that suit the candidate.
  Status Draw(size_t set);
  // Places outputs and scratch buffers for `set`, and fills them with values that a kernel must not
  // use.
  Status Poison(size_t set);
  // What a launch does with the prepared buffers. For timings and profiles the worker prepares.
  enum class Use { kPrepare, kRead, kTime };
  LaunchRequest LaunchOn(size_t set, Use use);
  // Fills the prepared buffers, and the scratch buffers with other values afterwards.
  Result<Verdict> PrepareOperands(size_t set);
  Result<Verdict> Launch(size_t set);
  // Refills outputs and scratch buffers, launches and checks.
  Result<Verdict> RunOnce(size_t set);
  // Spoils part of the outputs, keeps scratch buffers, launches and checks.
  Result<Verdict> RunAgain(size_t set);
  // Checks the bytes around the buffers, then the outputs.
  Result<Verdict> Examine(size_t set);
  // A random number for this set, purpose (`what`) and run. None can be computed from another.
  uint64_t Random(size_t set, uint64_t what) const;

  const OpSignature& region_;
  Target& target_;
  DeviceMemory& memory_;
  CandidateRunner& worker_;
  RegionReference& reference_;
  const uint64_t seed_;
  std::vector<Slot> slots_;  // one for all sets; or one for set 0 and one for the rest
  std::vector<PlacedBuffer> outputs_, scratch_;
  std::vector<int64_t> scratch_bytes_;      // of the loaded candidate
  size_t unprepared_ = 0;                   // of scratch_bytes_; the rest are prepared buffers
  std::vector<int64_t> input_alignments_;   // of the region's inputs, as the candidate requires
  RangeSplit split_ = RangeSplit::kServed;  // of the next launch
  int threads_ = 0;                         // for `split_`; 0: this machine's
  bool ran_ = false;                        // it has run on set 0
  uint64_t run_ = 0;                        // number of runs so far
  PhaseSeconds spent_;
  int64_t input_bytes_ = 0;  // of one set
  int64_t output_bytes_ = 0;
  int64_t free_ = 0;  // bytes, before any allocation
};

}  // namespace cudaforge
