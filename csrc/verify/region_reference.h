// RegionReference: the input sets of one region and the correct answers. Lives in the verifier;
// candidates run in workers and cannot see it.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "kernel/verdict.h"

namespace cudaforge {

// Pointers are to storage on the region's device, of TensorSpec::StorageBytes() bytes each. Not
// thread-safe. kNoMemory: too little memory is free.
class RegionReference {
 public:
  virtual ~RegionReference() = default;

  // Called once, before all other calls: computes ATen's answers on every set, drawn into the
  // inputs' storage. kUnsupported: correct and wrong answers cannot be distinguished, or ATen
  // refuses the inputs. kTimeout: all sets would take more than `seconds`, by extrapolation.
  virtual Status Prepare(std::span<void* const> /*inputs*/, double /*seconds*/) {
    return Status::Ok();
  }
  virtual size_t set_count() const = 0;  // at least one
  virtual std::string set_name(size_t set) const = 0;
  // Writes set `set` into the inputs' storage: the same bytes in every call.
  virtual Status Draw(size_t set, std::span<void* const> inputs) = 0;
  // Compares a candidate's outputs. `inputs` hold set `set`. Message and evidence are for the
  // candidate's author.
  virtual Result<Verdict> Check(size_t set, std::span<void* const> inputs,
                                std::span<void* const> outputs) = 0;
  // For each set and output: the rule of the comparison, ATen's errors and the errors allowed.
  virtual Json Report() const = 0;
};

}  // namespace cudaforge
