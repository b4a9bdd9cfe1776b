// RegionChecker: the inputs a candidate is tried on, ATen's answers, the fp64 answers, and the
// comparison. Lives in the parent; the candidate and the expected values are never in one process.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "kernel/verdict.h"
#include "signature/op_signature.h"
#include "worker/input_set.h"

namespace cudaforge {

class RegionChecker {
 public:
  // Makes the input sets from `seed`, as many as PlanInputs (input_plan.h) says, and computes
  // ATen's and the fp64 answers on the signature's device (device_index for cuda). kUnsupported:
  // this region cannot be judged (nothing to tell a right answer from a wrong one, or ATen refuses
  // it). kTimeout: by the sets made so far, all of them would take more than `seconds`.
  static Result<std::unique_ptr<RegionChecker>> Create(
      const OpSignature& signature, int device_index, uint64_t seed,
      double seconds = std::numeric_limits<double>::infinity());
  virtual ~RegionChecker() = default;

  virtual size_t case_count() const = 0;
  virtual const InputSet& inputs(size_t i) const = 0;
  // outputs[k]: StorageBytes() of output k, as the candidate left them. Not thread-safe: where a
  // candidate is in doubt, it measures more closely what rounding can do and how much ATen errs.
  virtual Verdict Check(size_t i, std::span<const std::string> outputs) const = 0;
  // Per case and output: ATen's error and the error allowed; part of the verification report.
  virtual Json Report() const = 0;
};

}  // namespace cudaforge
