// RegionVerifier: runs and checks candidates of one region, one after another.
#pragma once

#include <cstddef>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "kernel/candidate.h"
#include "kernel/verdict.h"
#include "verify/phase_seconds.h"
#include "worker/timing_plan.h"

namespace cudaforge {

// Not thread-safe. Errors are never the candidate's fault. kNoMemory: too little memory is free.
class RegionVerifier {
 public:
  virtual ~RegionVerifier() = default;

  virtual size_t set_count() const = 0;  // at least one
  virtual std::string set_name(size_t set) const = 0;
  // Makes a compiled candidate the subject of all calls below. Not accepted: it cannot be loaded.
  virtual Result<Verdict> Load(const std::string& binary, const Candidate& candidate) = 0;
  // Runs it on input set `set` and checks the outputs. From the second run on set 0, it runs once
  // more on the outputs and scratch buffers of the previous run.
  virtual Result<Verdict> Run(size_t set) = 0;
  struct Timed {
    Verdict verdict;        // of the time, and of the outputs of the last timed run
    double ns = 0;          // median on set 0, if accepted; for caches see WarmInputs
    double prepare_ns = 0;  // of preparing the operands, not part of `ns`; 0: there are none
  };
  virtual Result<Timed> Time(const TimingPlan& plan) = 0;
  // Launch facts and hardware counters of one call on set 0, up to `tier`: see Target::Profile. For
  // candidates that Run accepted. kUnsupported: no profiling here.
  virtual Result<Json> Profile(int /*tier*/) {
    return Status::Unsupported("this verifier profiles nothing");
  }
  // So far.
  virtual PhaseSeconds spent() const { return {}; }
  // See RegionReference::Report; part of the record.
  virtual Json Report() const = 0;
};

}  // namespace cudaforge
