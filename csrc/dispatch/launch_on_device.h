// What a launch on PyTorch's device needs besides its tensors: scratch memory, and where it runs.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <span>

#include "base/status.h"
#include "dispatch/resolver.h"
#include "target/target.h"

namespace cudaforge {

// The buffers of one call, in one allocation that is freed in stream order. The prepared buffers
// are in `kept`, or part of the allocation if that is null. Throws c10::Error.
class Scratch {
 public:
  Scratch(const Winner& winner, c10::Device device, void* kept = nullptr);
  std::span<void* const> pointers() const { return {pointers_.data(), pointers_.size()}; }

 private:
  c10::DataPtr host_;
  at::Tensor device_;
  c10::SmallVector<void*, 8> pointers_;
};

// The current stream of a CUDA device, which `guard` then makes current; PyTorch's threads on a
// CPU.
Result<LaunchContext> ContextOn(c10::Device device, std::optional<c10::DeviceGuard>* guard);

// The first line of an error of PyTorch.
std::string FirstLineOf(const c10::Error& error);

}  // namespace cudaforge
