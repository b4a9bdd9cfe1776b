// PreparedForms: the prepared operands of served kernels, made once and kept. One per process.
//
// A kept form belongs to one kernel and the storages and addresses of its frozen inputs. It is made
// at the first call, and once more, in place, when an input's version counter has changed. It is
// freed after a storage has died, unless a CUDA graph was captured with it.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <span>

#include "base/json.h"
#include "base/status.h"
#include "dispatch/resolver.h"
#include "dispatch/serve.h"

namespace cudaforge {

class PreparedForms {
 public:
  static PreparedForms& Get();

  // Returns the memory of the kept form for this call, ready on every stream; the memory lives as
  // long as the pointer. Null: none is kept, and the call prepares its operands in scratch memory
  // (a capture that finds no form, another thread makes it, or it does not fit). An error: the
  // kernel's launches failed. `pointers`: data of all inputs. REQUIRES: the kernel has prepared
  // operands. Thread-safe.
  Result<std::shared_ptr<void>> Find(const RegionEntry& entry, const Winner& winner,
                                     const TensorPointers& inputs, std::span<void* const> pointers);

  // Makes all kept forms, in place, from the present values of the weights. Returns how many.
  // Waits for the device before and after. Error: a stream is being captured, or some form could
  // not be made; it is made at its next call. Thread-safe.
  Result<int64_t> WeightsChanged();

  // The most bytes that forms may have on one device. Negative: a tenth of its memory, the default.
  // For tests.
  void SetLimit(int64_t bytes);

  // {"kept": forms, "bytes": of them, "made": preparations of forms, "per_call": calls that
  // prepared their operands in scratch memory}. The last two count since ResetStats.
  Json Stats() const;
  void ResetStats();

 private:
  PreparedForms();
  struct Impl;
  Impl* impl_;  // never destroyed: calls may come during interpreter shutdown
};

}  // namespace cudaforge
