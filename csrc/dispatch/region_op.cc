#include "dispatch/region_op.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <utility>

#include "base/own_work.h"
#include "dispatch/cuda_driver.h"
#include "dispatch/kernel_on_trial.h"
#include "dispatch/resolver.h"
#include "dispatch/serve.h"
#include "signature/aten_numerics.h"
#include "signature/from_aten_region.h"

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
        "cudaforge::region_v1 is not differentiable, but an input requires grad. Call it under "
        "torch.no_grad(), or through torch.compile, whose graphs have their own backward");
  }
}

// Returns true if the settings under which the kernel was proven are active.
bool NumericsHold(const RegionEntry& entry) {
  return !entry.matrix_numerics || *entry.matrix_numerics == NumericsWord(/*matrix=*/true);
}

c10::List<at::Tensor> RunByAten(const RegionEntry& entry, IValues inputs) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(inputs.size());
  for (const IValue& input : inputs) tensors.push_back(input.toTensor());
  return c10::List<at::Tensor>(entry.program->RunStrided(tensors));
}

// First call of a region on a device. Outside stream capture the loader runs. During capture
// nothing is loaded or compiled; a later call does it.
RegionEntry* ResolveUnseen(int64_t id, const std::string& signature, c10::Device device) {
  const bool may_load = !IsCapturing(device);
  auto entry = Resolver::Get().Resolve(id, signature, device.index(), may_load);
  TORCH_CHECK(entry.ok(), "cudaforge::region_v1: ", entry.status().ToString());
  return *entry;
}

c10::List<at::Tensor> RunRegion(RegionEntry* entry, IValues inputs) {
  Resolver& resolver = Resolver::Get();
  const Fit fit = entry->contract.Check(inputs);
  TORCH_CHECK(fit != Fit::kShape, "cudaforge::region_v1 ", entry->signature.Describe(), ": ",
              entry->contract.Explain(inputs));
  const Winner* winner = KernelOnTrial::WinnerOf(*entry);
  if (winner == nullptr) {
    if (entry->quarantined.load(std::memory_order_relaxed)) {
      resolver.CountFallback(entry, Fallback::kQuarantined);
    } else if (!OwnWork::InForce()) {
      entry->unserved.fetch_add(1, std::memory_order_relaxed);
    }
    return RunByAten(*entry, inputs);
  }
  if (fit != Fit::kYes) {
    resolver.CountFallback(entry, fit == Fit::kStrides ? Fallback::kStrides : Fallback::kDevice);
    return RunByAten(*entry, inputs);
  }
  if (!NumericsHold(*entry)) {
    resolver.CountFallback(entry, Fallback::kNumerics);
    return RunByAten(*entry, inputs);
  }
  TensorPointers tensors;
  for (const IValue& input : inputs) tensors.push_back(&input.toTensor());
  OutputTensors made;
  if (!Serve(entry, *winner, tensors, &made)) return RunByAten(*entry, inputs);
  c10::List<at::Tensor> outputs;
  outputs.reserve(made.size());
  for (at::Tensor& output : made) outputs.push_back(std::move(output));
  return outputs;
}

void RegionKernel(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  IValue outputs;
  {
    const auto args = torch::jit::last(*stack, 3);
    const IValues inputs = args[0].toListRef();
    const int64_t id = args[1].toInt();
    TORCH_CHECK(!inputs.empty(), "cudaforge::region_v1 takes at least one input");
    CheckNotDifferentiable(inputs);
    const c10::Device device = inputs[0].toTensor().device();
    Resolver& resolver = Resolver::Get();
    RegionEntry* entry = resolver.Find(id, device.index());
    if (entry == nullptr || resolver.WouldLoad(*entry)) [[unlikely]] {
      entry = ResolveUnseen(id, args[2].toStringRef(), device);
    }
    outputs = RunRegion(entry, inputs);
  }
  torch::jit::drop(*stack, 3);
  stack->emplace_back(std::move(outputs));
}

// Meta tensors with the sizes, strides and dtypes of the signature's outputs.
void MetaKernel(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  const auto args = torch::jit::last(*stack, 3);
  const size_t given = args[0].toListRef().size();
  const int64_t id = args[1].toInt();
  const Result<OpSignature> region = OpSignature::Parse(args[2].toStringRef());
  TORCH_CHECK(region.ok(), "cudaforge::region_v1: ", region.status().ToString());
  TORCH_CHECK(RegionId(region->Key()) == id, "cudaforge::region_v1: ", OtherRegion(id).ToString());
  TORCH_CHECK(given == region->inputs.size(), "cudaforge::region_v1 ", region->Describe(),
              " takes ", region->inputs.size(), " inputs, not ", given);
  c10::List<at::Tensor> outputs;
  for (size_t i = 0; i < region->outputs.size(); ++i) {
    const TensorSpec& spec = region->output_spec(i);
    outputs.push_back(
        at::detail::empty_strided_meta(spec.sizes, spec.strides, ToScalarType(spec.dtype)));
  }
  torch::jit::drop(*stack, 3);
  stack->emplace_back(std::move(outputs));
}

}  // namespace

c10::OperatorHandle RegionOperator() {
  return c10::Dispatcher::singleton().findSchemaOrThrow("cudaforge::region_v1", "");
}

TORCH_LIBRARY(cudaforge, library) {
  library.def("region_v1(Tensor[] inputs, int id, str signature) -> Tensor[]",
              // A winner is made for the traced graph's strides, which Inductor would otherwise be
              // free to change. It reads them from the graph pass's metadata of each call.
              {at::Tag::pt2_compliant_tag, at::Tag::needs_exact_strides});
}

TORCH_LIBRARY_IMPL(cudaforge, CPU, library) {
  library.impl("region_v1", torch::CppFunction::makeFromBoxedFunction<&RegionKernel>());
}

TORCH_LIBRARY_IMPL(cudaforge, CUDA, library) {
  library.impl("region_v1", torch::CppFunction::makeFromBoxedFunction<&RegionKernel>());
}

TORCH_LIBRARY_IMPL(cudaforge, Meta, library) {
  library.impl("region_v1", torch::CppFunction::makeFromBoxedFunction<&MetaKernel>());
}

// The kernels themselves refuse inputs that need a gradient, which saves a dispatch per call.
TORCH_LIBRARY_IMPL(cudaforge, Autograd, library) {
  library.impl("region_v1", torch::CppFunction::makeFallthrough());
}

}  // namespace cudaforge
