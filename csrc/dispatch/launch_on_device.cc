#include "dispatch/launch_on_device.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <torch/csrc/stable/c/shim.h>

#include "dispatch/cuda_driver.h"

namespace cudaforge {
namespace {

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

}  // namespace

Scratch::Scratch(const Winner& winner, c10::Device device, void* kept) {
  const int64_t needed = winner.scratch_bytes + (kept == nullptr ? winner.prepared_bytes : 0);
  uintptr_t base = 0;
  if (needed != 0 && device.is_cpu()) {
    host_ = c10::GetCPUAllocator()->allocate(static_cast<size_t>(needed + kScratchAlignment));
    base = reinterpret_cast<uintptr_t>(host_.get());
    base = (base + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  } else if (needed != 0) {
    // The caching allocator's blocks are 512-byte aligned.
    device_ = at::empty({needed}, at::TensorOptions(at::kByte).device(device));
    base = reinterpret_cast<uintptr_t>(device_.mutable_data_ptr());
  }
  const uintptr_t prepared = kept != nullptr ? reinterpret_cast<uintptr_t>(kept)
                                             : base + static_cast<uintptr_t>(winner.scratch_bytes);
  const size_t unprepared = winner.scratch_offsets.size() - winner.executable->prepared_count();
  for (size_t i = 0; i < winner.scratch_offsets.size(); ++i) {
    const uintptr_t from = i < unprepared ? base : prepared;
    const auto offset = static_cast<uintptr_t>(winner.scratch_offsets[i]);
    pointers_.push_back(from == 0 ? nullptr : reinterpret_cast<void*>(from + offset));
  }
}

Result<LaunchContext> ContextOn(c10::Device device, std::optional<c10::DeviceGuard>* guard) {
  LaunchContext context;
  if (device.is_cpu()) {
    context.parallel_for = &AtenParallelFor;
    return context;
  }
  guard->emplace(device);
  CF_RETURN_IF_ERROR(BindPrimaryContext(device.index()));
  context.stream = CurrentStream(device);
  return context;
}

std::string FirstLineOf(const c10::Error& error) {
  const std::string words = error.what_without_backtrace();
  return words.substr(0, words.find('\n'));
}

}  // namespace cudaforge
