// Draws the inputs of a set where they lie.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "signature/op_signature.h"
#include "verify/draw_plan.h"
#include "verify/own_kernels.h"

namespace cudaforge {

class Drawer {
 public:
  // `kernels`: of the device on kCuda, and outlives this; null on kCpu. kInvalidArgument otherwise.
  static Result<std::unique_ptr<Drawer>> Create(DeviceType device, OwnKernels* kernels);

  // Writes every byte of each input's storage once; the same bytes for the same set and seed on any
  // device. storage[i]: input i's first element, a multiple of the element size, in memory of the
  // device, signature.inputs[i].StorageBytes() long; may be null where that is 0. On the CPU done
  // when this returns, by all CPUs of the process; on kCuda in the order of the legacy default
  // stream, without waiting. Thread-safe. kInvalidArgument: another number of inputs or sizes than
  // the set's.
  Status Draw(const DrawSet& set, const OpSignature& signature, uint64_t seed,
              std::span<void* const> storage) const;

 private:
  explicit Drawer(OwnKernels* kernels) : kernels_(kernels) {}

  OwnKernels* const kernels_;  // null on the CPU
};

}  // namespace cudaforge
