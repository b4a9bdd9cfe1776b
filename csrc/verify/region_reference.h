// RegionReference: the input sets of one region and the answers to them. The candidate never sees
// it: it lives in the verifier, and candidates run in workers.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "kernel/verdict.h"

namespace cudaforge {

// Pointers are to storage on the region's device, of TensorSpec::StorageBytes() bytes each. Not
// thread-safe. kNoMemory: the memory that is free now does not suffice.
class RegionReference {
 public:
  virtual ~RegionReference() = default;

  // Called once, before all that follows: ATen's answers on every set, drawn into the inputs'
  // storage. kUnsupported: nothing tells a right answer from a wrong one, or ATen refuses the
  // inputs. kTimeout: by the sets so far, all of them would take more than `seconds`.
  virtual Status Prepare(std::span<void* const> /*inputs*/, double /*seconds*/) {
    return Status::Ok();
  }
  virtual size_t set_count() const = 0;  // at least one
  virtual std::string set_name(size_t set) const = 0;
  // Writes set `set` into the inputs' storage: the same bytes in every call.
  virtual Status Draw(size_t set, std::span<void* const> inputs) = 0;
  // Compares what a candidate wrote. `inputs` hold set `set`. The message and the evidence are for
  // the candidate's author.
  virtual Result<Verdict> Check(size_t set, std::span<void* const> inputs,
                                std::span<void* const> outputs) = 0;
  // Of each set and output: the rule of the comparison, ATen's errors and the errors allowed.
  virtual Json Report() const = 0;
};

}  // namespace cudaforge
