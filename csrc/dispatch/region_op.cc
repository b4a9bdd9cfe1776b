#include "dispatch/region_op.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/stable/c/shim.h>
#include <torch/library.h>

#include <optional>
#include <utility>

#include "dispatch/cuda_driver.h"
#include "dispatch/region_meta.h"
#include "dispatch/resolver.h"
#include "target/target.h"

namespace cudaforge {
namespace {

using c10::IValue;
using IValues = c10::ArrayRef<IValue>;
using Fit = InputContract::Fit;

void CheckNotDifferentiable(IValues inputs) {
  if (!c10::GradMode::is_enabled()) return;
  for (const IValue& input : inputs) {
    TORCH_CHECK(
        !input.toTensor().requires_grad(),
        "cudaforge::region is not differentiable, but an input requires grad. Call it under "
        "torch.no_grad(), or through torch.compile, whose graphs have their own backward");
  }
}

void* CurrentStream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
}

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

// Fills `pointers`; false when one is not aligned as the winner needs.
bool GatherInputs(const Winner& winner, IValues inputs, c10::SmallVectorImpl<void*>* pointers) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    // const_data_ptr leaves copy-on-write storage alone; kernels never write inputs.
    const void* data = inputs[i].toTensor().const_data_ptr();
    if ((reinterpret_cast<uintptr_t>(data) & winner.alignment_masks[i]) != 0) return false;
    pointers->push_back(const_cast<void*>(data));
  }
  return true;
}

// at::parallel_for as a LaunchContext takes it: PyTorch's own threads. `body` must not throw.
void AtenParallelFor(int64_t n, int64_t grain, RangeFn body, void* context) {
  struct Call {
    RangeFn body;
    void* context;
  } call{body, context};
  // PyTorch's thread pool is OpenMP inside libtorch; the header's at::parallel_for would start a
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

Status Launch(const RegionEntry& entry, const Winner& winner, std::span<void* const> inputs,
              c10::List<at::Tensor>* outputs) {
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
  outputs->reserve(entry.output_dtypes.size());
  for (size_t i = 0; i < entry.output_dtypes.size(); ++i) {
    at::Tensor output = EmptyOutput(entry.signature.output_spec(i), entry.output_dtypes[i], device);
    pointers.push_back(output.mutable_data_ptr());
    outputs->push_back(std::move(output));
  }
  const Scratch scratch(winner, device);
  return winner.executable->Launch(inputs, {pointers.data(), pointers.size()}, scratch.pointers(),
                                   context);
}

// Whether the settings that the kernel was proven under are in force, as far as a graph is not
// guarded by them.
bool NumericsHold(const RegionEntry& entry) {
  return !entry.cudnn_tf32.has_value() ||
         *entry.cudnn_tf32 == at::globalContext().allowTF32CuDNN(at::Float32Op::CONV);
}

c10::List<at::Tensor> RunByAten(const RegionEntry& entry, IValues inputs) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(inputs.size());
  for (const IValue& input : inputs) tensors.push_back(input.toTensor());
  return c10::List<at::Tensor>(entry.program->RunStrided(tensors));
}

// First sight of a region on a device: outside stream capture the loader is asked; inside, nothing
// is loaded or compiled, and a later call asks.
RegionEntry* ResolveUnseen(int64_t id, const std::string& signature, c10::Device device) {
  const bool may_load = device.is_cpu() || !IsCapturing(CurrentStream(device));
  auto entry = Resolver::Get().Resolve(id, signature, device.index(), may_load);
  TORCH_CHECK(entry.ok(), "cudaforge::region: ", entry.status().ToString());
  return *entry;
}

c10::List<at::Tensor> RunRegion(RegionEntry* entry, IValues inputs) {
  Resolver& resolver = Resolver::Get();
  const Fit fit = entry->contract.Check(inputs);
  TORCH_CHECK(fit != Fit::kShape, "cudaforge::region ", entry->signature.Describe(), ": ",
              entry->contract.Explain(inputs));
  const Winner* winner = entry->winner.load(std::memory_order_acquire);
  if (winner == nullptr) {
    if (entry->quarantined.load(std::memory_order_relaxed)) {
      resolver.CountFallback(entry, Fallback::kQuarantined);
    } else {
      entry->unserved.fetch_add(1, std::memory_order_relaxed);
    }
    return RunByAten(*entry, inputs);
  }
  c10::SmallVector<void*, 16> pointers;
  Fallback reason = Fallback::kAlignment;
  if (fit != Fit::kYes) {
    reason = fit == Fit::kStrides ? Fallback::kStrides : Fallback::kDevice;
  } else if (!NumericsHold(*entry)) {
    reason = Fallback::kNumerics;
  } else if (GatherInputs(*winner, inputs, &pointers)) {
    c10::List<at::Tensor> outputs;
    const Status launched = Launch(*entry, *winner, {pointers.data(), pointers.size()}, &outputs);
    if (launched.ok()) {
      entry->hits.fetch_add(1, std::memory_order_relaxed);
      return outputs;
    }
    resolver.Quarantine(entry, launched.ToString());
    reason = Fallback::kLaunchError;
  }
  resolver.CountFallback(entry, reason);
  return RunByAten(*entry, inputs);
}

void RegionKernel(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  IValue outputs;
  {
    const auto args = torch::jit::last(*stack, 3);
    const IValues inputs = args[0].toListRef();
    const int64_t id = args[1].toInt();
    TORCH_CHECK(!inputs.empty(), "cudaforge::region takes at least one input");
    CheckNotDifferentiable(inputs);
    const c10::Device device = inputs[0].toTensor().device();
    Resolver& resolver = Resolver::Get();
    RegionEntry* entry = resolver.Find(id, device.index());
    if (entry == nullptr || resolver.WantsWinner(*entry)) [[unlikely]] {
      entry = ResolveUnseen(id, args[2].toStringRef(), device);
    }
    outputs = RunRegion(entry, inputs);
  }
  torch::jit::drop(*stack, 3);
  stack->emplace_back(std::move(outputs));
}

void MetaKernel(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  const auto args = torch::jit::last(*stack, 3);
  auto outputs = MetaOutputs(args[0].toListRef().size(), args[1].toInt(), args[2].toStringRef());
  TORCH_CHECK(outputs.ok(), "cudaforge::region: ", outputs.status().ToString());
  torch::jit::drop(*stack, 3);
  stack->emplace_back(c10::List<at::Tensor>(*std::move(outputs)));
}

}  // namespace

c10::OperatorHandle RegionOperator() {
  return c10::Dispatcher::singleton().findSchemaOrThrow("cudaforge::region", "");
}

TORCH_LIBRARY(cudaforge, library) {
  library.def("region(Tensor[] inputs, int id, str signature) -> Tensor[]",
              // A winner is made for the strides of the traced graph; Inductor, left alone, may
              // change them. It reads them from what the graph pass notes beside each call.
              {at::Tag::pt2_compliant_tag, at::Tag::needs_exact_strides});
}

TORCH_LIBRARY_IMPL(cudaforge, CPU, library) {
  library.impl("region", torch::CppFunction::makeFromBoxedFunction<&RegionKernel>());
}

TORCH_LIBRARY_IMPL(cudaforge, CUDA, library) {
  library.impl("region", torch::CppFunction::makeFromBoxedFunction<&RegionKernel>());
}

TORCH_LIBRARY_IMPL(cudaforge, Meta, library) {
  library.impl("region", torch::CppFunction::makeFromBoxedFunction<&MetaKernel>());
}

// The kernels refuse what would need a gradient themselves: one hop less for every call.
TORCH_LIBRARY_IMPL(cudaforge, Autograd, library) {
  library.impl("region", torch::CppFunction::makeFallthrough());
}

}  // namespace cudaforge
