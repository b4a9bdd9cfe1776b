#include "dispatch/serve.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>

#include <memory>
#include <optional>
#include <string>

#include "base/own_work.h"
#include "dispatch/cuda_driver.h"
#include "dispatch/launch_on_device.h"
#include "dispatch/prepared_forms.h"
#include "target/target.h"

namespace cudaforge {
namespace {

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

// Allocates the outputs and the scratch. The error has the allocator's message.
Status Allocate(const RegionEntry& entry, const Winner& winner, void* kept, OutputTensors* outputs,
                std::optional<Scratch>* scratch) {
  const c10::Device device = entry.contract.device();
  try {
    scratch->emplace(winner, device, kept);
    for (size_t i = 0; i < entry.output_dtypes.size(); ++i) {
      outputs->push_back(
          EmptyOutput(entry.signature.output_spec(i), entry.output_dtypes[i], device));
    }
    return Status::Ok();
  } catch (const c10::Error& error) {
    outputs->clear();  // free the memory for PyTorch's own kernel
    return Status::Unavailable(FirstLineOf(error));
  }
}

Status LaunchWinner(const RegionEntry& entry, const Winner& winner, std::span<void* const> inputs,
                    const OutputTensors& outputs, const Scratch& scratch, bool prepares) {
  std::optional<c10::DeviceGuard> guard;
  CF_ASSIGN_OR_RETURN(const LaunchContext context, ContextOn(entry.contract.device(), &guard));
  if (prepares) {
    CF_RETURN_IF_ERROR(winner.executable->PrepareOperands(inputs, scratch.pointers(), context));
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
  const auto failed = [&](const Status& why) {
    resolver.Quarantine(entry, why.ToString());
    return left(Fallback::kLaunchError);
  };
  const bool has_prepared = winner.executable->prepared_count() > 0;
  std::shared_ptr<void> kept;
  if (has_prepared) {
    auto found =
        PreparedForms::Get().Find(*entry, winner, inputs, {pointers.data(), pointers.size()});
    if (!found.ok()) return failed(found.status());
    kept = *std::move(found);
  }
  std::optional<Scratch> scratch;
  if (const Status made = Allocate(*entry, winner, kept.get(), outputs, &scratch); !made.ok()) {
    std::string needs = "the outputs";
    const int64_t bytes = winner.scratch_bytes + (kept == nullptr ? winner.prepared_bytes : 0);
    if (bytes != 0) needs += " and " + std::to_string(bytes) + " bytes of scratch";
    resolver.Warn("cudaforge: too little memory for " + needs + " of the kernel of " +
                  entry->signature.Describe() + " (" + made.message() +
                  "): PyTorch runs this call; later calls try the kernel again");
    return left(Fallback::kNoMemory);
  }
  const Status launched = LaunchWinner(*entry, winner, {pointers.data(), pointers.size()}, *outputs,
                                       *scratch, has_prepared && kept == nullptr);
  if (!launched.ok()) return failed(launched);
  (OwnWork::InForce() ? entry->own_hits : entry->hits).fetch_add(1, std::memory_order_relaxed);
  return true;
}

}  // namespace cudaforge
