// WorkerRegionVerifier: runs candidates in a worker on memory that this process owns. Inputs are
// mapped read-only, outputs and scratch buffers writable, and nothing else is in the worker's
// reach: not the answers, not the seeds. Torch-free.
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
  // Takes the memory for the inputs and the outputs, and prepares `reference`, with its errors. All
  // that is passed in must outlive it; `seed` is secret. kNoMemory, with the bytes needed, by part,
  // and the bytes free.
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
  // How run `run` of `runs` on this set is cut, on a CPU.
  void ChooseSplit(size_t set, int run, int runs);
  // Draws set `set` into its slot, unless it is there at addresses that suit the candidate.
  Status Draw(size_t set);
  // Places outputs and scratch buffers for `set`, and fills them with what no kernel may use.
  Status Poison(size_t set);
  LaunchRequest LaunchOn(size_t set);
  Result<Verdict> Launch(size_t set);
  // Fills outputs and scratch buffers anew, launches and examines.
  Result<Verdict> RunOnce(size_t set);
  // Spoils a part of the outputs, launches and examines; scratch buffers stay as they are.
  Result<Verdict> RunAgain(size_t set);
  // Checks the bytes around the buffers, then the outputs.
  Result<Verdict> Examine(size_t set);
  // A number for this set, use (`what`) and run. From one of them no other can be computed.
  uint64_t Random(size_t set, uint64_t what) const;

  const OpSignature& region_;
  Target& target_;
  DeviceMemory& memory_;
  CandidateRunner& worker_;
  RegionReference& reference_;
  const uint64_t seed_;
  std::vector<Slot> slots_;  // one for all sets; or one for set 0 and one for the others
  std::vector<PlacedBuffer> outputs_, scratch_;
  std::vector<int64_t> scratch_bytes_;      // of the loaded candidate
  std::vector<int64_t> input_alignments_;   // of the region's inputs, as the candidate asks for
  RangeSplit split_ = RangeSplit::kServed;  // of the next launch
  int threads_ = 0;                         // that it is cut for; 0: this machine's
  bool ran_ = false;                        // it ran on set 0 already
  uint64_t run_ = 0;                        // runs so far
  PhaseSeconds spent_;
  int64_t input_bytes_ = 0;  // of one set
  int64_t output_bytes_ = 0;
  int64_t free_ = 0;  // bytes, before anything was taken
};

}  // namespace cudaforge
