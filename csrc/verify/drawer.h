// Draws the inputs of a set on their device.
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
  // `kernels`: required on kCuda, and must outlive this; null on kCpu. Otherwise kInvalidArgument.
  static Result<std::unique_ptr<Drawer>> Create(DeviceType device, OwnKernels* kernels);

  // Writes every byte of each input's storage once. The same set and seed give the same bytes on
  // any device. storage[i]: signature.inputs[i].StorageBytes() bytes on the device, aligned to the
  // element size; may be null for 0 bytes. On the CPU, uses all CPUs of the process and returns
  // when done. On kCuda, asynchronous on the legacy default stream. Thread-safe. kInvalidArgument:
  // not the set's number or sizes of inputs.
  Status Draw(const DrawSet& set, const OpSignature& signature, uint64_t seed,
              std::span<void* const> storage) const;

 private:
  explicit Drawer(OwnKernels* kernels) : kernels_(kernels) {}

  OwnKernels* const kernels_;  // null on the CPU
};

}  // namespace cudaforge
