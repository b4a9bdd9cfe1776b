#include "dispatch/serve.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>
#include <torch/csrc/stable/c/shim.h>

#include <optional>
#include <string>
#include <utility>

#include "base/own_work.h"
#include "dispatch/cuda_driver.h"
#include "target/target.h"

namespace cudaforge {
namespace {

// One allocation for all scratch buffers, freed in stream order.
class Scratch {
 public:
  Scratch(const Winner& winner, c10::Device device) {
    if (winner.scratch_bytes == 0) {
      pointers_.resize(winner.scratch_offsets.size(), nullptr);
      return;
    }
    uintptr_t base = 0;
    if (device.is_cpu()) {
      const auto bytes = static_cast<size_t>(winner.scratch_bytes) + kScratchAlignment;
      host_ = c10::GetCPUAllocator()->allocate(bytes);
      base = reinterpret_cast<uintptr_t>(host_.get());
      base = (base + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
    } else {
      // The caching allocator's blocks are 512-byte aligned.
      device_ = at::empty({winner.scratch_bytes}, at::TensorOptions(at::kByte).device(device));
      base = reinterpret_cast<uintptr_t>(device_.mutable_data_ptr());
    }
    for (int64_t offset : winner.scratch_offsets) {
      pointers_.push_back(reinterpret_cast<void*>(base + static_cast<uintptr_t>(offset)));
    }
  }
  std::span<void* const> pointers() const { return {pointers_.data(), pointers_.size()}; }

 private:
  c10::DataPtr host_;
  at::Tensor device_;
  c10::SmallVector<void*, 8> pointers_;
};

at::Tensor EmptyOutput(const TensorSpec& spec, at::ScalarType dtype, c10::Device device) {
  if (device.is_cpu()) {
    return at::Tensor(at::detail::empty_strided_cpu(spec.sizes, spec.strides, dtype));
  }
  return at::empty_strided(spec.sizes, spec.strides, at::TensorOptions(dtype).device(device));
}

// Fills `pointers`. Returns false if one is not aligned as the winner needs.
bool GatherInputs(const Winner& winner, const TensorPointers& inputs,
                  c10::SmallVectorImpl<void*>* pointers) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    // const_data_ptr does not copy copy-on-write storage. Kernels never write inputs.
    const void* data = inputs[i]->const_data_ptr();
    if ((reinterpret_cast<uintptr_t>(data) & winner.alignment_masks[i]) != 0) return false;
    pointers->push_back(const_cast<void*>(data));
  }
  return true;
}

// at::parallel_for for a LaunchContext, on PyTorch's threads. `body` must not throw.
void AtenParallelFor(int64_t n, int64_t grain, RangeFn body, void* context) {
  struct Call {
    RangeFn body;
    void* context;
  } call{body, context};
  // PyTorch's thread pool is OpenMP inside libtorch. The header's at::parallel_for would start a
  // second one here.
  const auto error = torch_parallel_for(
      0, n, grain,
      [](int64_t begin, int64_t end, void* data) {
        const auto* c = static_cast<const Call*>(data);
        c->body(c->context, begin, end);
      },
      &call);
  CF_CHECK(error == 0) << "torch_parallel_for";
}

// Allocates the outputs and the scratch. The error has the allocator's message.
Status Allocate(const RegionEntry& entry, const Winner& winner, OutputTensors* outputs,
                std::optional<Scratch>* scratch) {
  const c10::Device device = entry.contract.device();
  try {
    scratch->emplace(winner, device);
    for (size_t i = 0; i < entry.output_dtypes.size(); ++i) {
      outputs->push_back(
          EmptyOutput(entry.signature.output_spec(i), entry.output_dtypes[i], device));
    }
    return Status::Ok();
  } catch (const c10::Error& error) {
    outputs->clear();  // free the memory for PyTorch's own kernel
    const std::string words = error.what_without_backtrace();
    return Status::Unavailable(words.substr(0, words.find('\n')));
  }
}

Status LaunchWinner(const RegionEntry& entry, const Winner& winner, std::span<void* const> inputs,
                    const OutputTensors& outputs, const Scratch& scratch) {
  const c10::Device device = entry.contract.device();
  std::optional<c10::DeviceGuard> guard;
  LaunchContext context;
  if (device.is_cpu()) {
    context.parallel_for = &AtenParallelFor;
  } else {
    guard.emplace(device);
    CF_RETURN_IF_ERROR(BindPrimaryContext(device.index()));
    context.stream = CurrentStream(device);
  }
  c10::SmallVector<void*, 8> pointers;
  for (const at::Tensor& output : outputs) pointers.push_back(output.mutable_data_ptr());
  return winner.executable->Launch(inputs, {pointers.data(), pointers.size()}, scratch.pointers(),
                                   context);
}

}  // namespace

bool Serve(RegionEntry* entry, const Winner& winner, const TensorPointers& inputs,
           OutputTensors* outputs) {
  Resolver& resolver = Resolver::Get();
  const auto left = [&](Fallback reason) {
    resolver.CountFallback(entry, reason);
    return false;
  };
  c10::SmallVector<void*, 16> pointers;
  if (!GatherInputs(winner, inputs, &pointers)) {
    RegionEntry* const other = resolver.Unaligned(entry, !IsCapturing(entry->contract.device()));
    const Winner* const its = other != nullptr ? other->winner.load() : nullptr;
    return its != nullptr ? Serve(other, *its, inputs, outputs) : left(Fallback::kAlignment);
  }
  for (const LabelInput& labels : entry->labels) {
    if (!AreInRange(*inputs[labels.index], labels)) return left(Fallback::kLabels);
  }
  std::optional<Scratch> scratch;
  if (const Status made = Allocate(*entry, winner, outputs, &scratch); !made.ok()) {
    std::string needs = "the outputs";
    if (winner.scratch_bytes != 0) {
      needs += " and " + std::to_string(winner.scratch_bytes) + " bytes of scratch";
    }
    resolver.Warn("cudaforge: too little memory for " + needs + " of the kernel of " +
                  entry->signature.Describe() + " (" + made.message() +
                  "): PyTorch runs this call; later calls try the kernel again");
    return left(Fallback::kNoMemory);
  }
  const Status launched =
      LaunchWinner(*entry, winner, {pointers.data(), pointers.size()}, *outputs, *scratch);
  if (!launched.ok()) {
    resolver.Quarantine(entry, launched.ToString());
    return left(Fallback::kLaunchError);
  }
  (OwnWork::InForce() ? entry->own_hits : entry->hits).fetch_add(1, std::memory_order_relaxed);
  return true;
}

}  // namespace cudaforge
