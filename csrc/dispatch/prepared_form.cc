#include "dispatch/prepared_form.h"

#include <ATen/ATen.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "base/append_only_table.h"
#include "dispatch/cuda_driver.h"
#include "dispatch/launch_on_device.h"
#include "target/cuda/driver_api.h"

namespace cudaforge {
namespace {

uint32_t VersionOf(const at::Tensor& tensor) {
  if (tensor.is_inference()) return 0;
  return tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

// While it lives, this thread may allocate and wait although another one captures a CUDA graph.
class BesideCaptures {
 public:
  explicit BesideCaptures(c10::Device device) {
    const auto& driver = cu::DriverApi::Get();
    if (!device.is_cuda() || !driver.ok()) return;
    exchange_ = (*driver)->ThreadExchangeStreamCaptureMode;
    if (exchange_ != nullptr) exchange_(&mode_);
  }
  ~BesideCaptures() {
    if (exchange_ != nullptr) exchange_(&mode_);
  }
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;

 private:
  cu::Result (*exchange_)(int* mode) = nullptr;
  int mode_ = cu::kCaptureModeRelaxed;
};

Result<DeviceBuffer> AllocateOn(c10::Device device, int64_t bytes) {
  if (device.is_cpu()) {
    void* const data = std::aligned_alloc(kScratchAlignment, static_cast<size_t>(bytes));
    if (data == nullptr) return Status::NoMemory("no host memory is free");
    return DeviceBuffer(data, bytes, [](void* pointer) { std::free(pointer); });
  }
  // Not from PyTorch's allocator: a CUDA graph's private pool may be active.
  const auto& driver = cu::DriverApi::Get();
  if (!driver.ok()) return driver.status();
  const cu::DriverApi& api = **driver;
  cu::DevicePtr made = 0;
  CF_RETURN_IF_ERROR(api.Check(api.MemAlloc(&made, static_cast<size_t>(bytes)), "cuMemAlloc"));
  return DeviceBuffer(reinterpret_cast<void*>(made), bytes, [device, &api](void* pointer) {
    std::optional<c10::DeviceGuard> guard;
    const BesideCaptures beside(device);
    // Waits for the kernels that still read it.
    if (ContextOn(device, &guard).ok()) api.MemFree(reinterpret_cast<cu::DevicePtr>(pointer));
  });
}

// Waits for a stream (nullptr: for all of the current device). Does nothing on a CPU.
Status WaitFor(c10::Device device, void* const* stream) {
  if (device.is_cpu()) return Status::Ok();
  const auto& driver = cu::DriverApi::Get();
  if (!driver.ok()) return driver.status();
  const cu::DriverApi& api = **driver;
  if (stream == nullptr) return api.Check(api.ContextSynchronize(), "cuCtxSynchronize");
  return api.Check(api.StreamSynchronize(static_cast<cu::Stream>(*stream)), "cuStreamSynchronize");
}

}  // namespace

std::shared_ptr<PreparedForm> PreparedForm::Of(const RegionEntry& entry, const Winner& winner,
                                               const TensorPointers& inputs,
                                               std::span<void* const> pointers) {
  auto form = std::make_shared<PreparedForm>();
  form->winner = &winner;
  form->device = entry.contract.device();
  form->pointers.resize(pointers.size(), nullptr);
  for (const size_t i : winner.frozen_inputs) {
    form->pointers[i] = pointers[i];
    const c10::Storage& storage = inputs[i]->storage();
    form->inputs.push_back({storage.getWeakStorageImpl(), storage.data(), 0});
  }
  return form;
}

bool PreparedForm::IsDead() const {
  return std::ranges::any_of(inputs, [](const FrozenInput& one) { return one.storage.expired(); });
}

bool PreparedForm::HasStorages(const TensorPointers& tensors) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& tensor = *tensors[winner->frozen_inputs[i]];
    if (inputs[i].storage._unsafe_get_target() != tensor.storage().unsafeGetStorageImpl()) {
      return false;
    }
  }
  return true;
}

bool PreparedForm::HasVersions(const TensorPointers& tensors) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].version != VersionOf(*tensors[winner->frozen_inputs[i]])) return false;
  }
  return true;
}

void PreparedForm::TakeVersions(const TensorPointers& tensors) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    inputs[i].version = VersionOf(*tensors[winner->frozen_inputs[i]]);
  }
}

Status PreparedForm::Fill(bool whole_device) {
  std::optional<c10::DeviceGuard> guard;
  CF_ASSIGN_OR_RETURN(const LaunchContext context, ContextOn(device, &guard));
  const BesideCaptures beside(device);
  if (whole_device) CF_RETURN_IF_ERROR(WaitFor(device, nullptr));
  if (memory.data() == nullptr) {
    const int64_t bytes = std::max(winner->prepared_bytes, kScratchAlignment);
    CF_ASSIGN_OR_RETURN(memory, AllocateOn(device, bytes));
  }
  try {
    const Scratch scratch(*winner, device, memory.data());
    CF_RETURN_IF_ERROR(winner->executable->PrepareOperands(pointers, scratch.pointers(), context));
    return WaitFor(device, &context.stream);
  } catch (const c10::Error& error) {
    return Status::NoMemory(FirstLineOf(error));
  }
}

FormKey::FormKey(const Winner& of, std::span<void* const> all) : winner(&of) {
  for (const size_t i : of.frozen_inputs) pointers.push_back(all[i]);
}

size_t FormKey::Hash::operator()(const FormKey& key) const {
  size_t hash = reinterpret_cast<uintptr_t>(key.winner);
  for (const void* pointer : key.pointers) {
    hash = Spread(hash ^ reinterpret_cast<uintptr_t>(pointer));
  }
  return hash;
}

int64_t MemoryOf(c10::Device device) {
  if (device.is_cpu()) return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  const auto& driver = cu::DriverApi::Get();
  cu::Device of = 0;
  size_t total = 0;
  const bool known = driver.ok() && (*driver)->DeviceGet(&of, device.index()) == 0 &&
                     (*driver)->DeviceTotalMem(&total, of) == 0;
  return known ? static_cast<int64_t>(total) : 0;
}

}  // namespace cudaforge
