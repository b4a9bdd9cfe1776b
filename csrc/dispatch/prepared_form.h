// PreparedForm: the prepared operands of one kernel and its frozen inputs, in memory of their own.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "dispatch/resolver.h"
#include "dispatch/serve.h"
#include "target/device_buffer.h"

namespace cudaforge {

// One frozen input of a form.
struct FrozenInput {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // no other gets its address while this lives
  const void* base = nullptr;                         // of the storage
  uint32_t version = 0;
};

struct PreparedForm {
  enum class State { kStale, kMaking, kReady };

  const Winner* winner = nullptr;
  c10::Device device = c10::Device(c10::kCPU);
  std::vector<void*> pointers;      // of the region's inputs; null: not frozen
  std::vector<FrozenInput> inputs;  // as Winner::frozen_inputs
  DeviceBuffer memory;

  // Guarded by the mutex of PreparedForms.
  State state = State::kStale;
  bool changed = false;  // the weights changed while the form was made
  bool pinned = false;   // a CUDA graph has its address: it is never freed
  int64_t uses = 0;

  // A form of these inputs, without memory.
  static std::shared_ptr<PreparedForm> Of(const RegionEntry& entry, const Winner& winner,
                                          const TensorPointers& inputs,
                                          std::span<void* const> pointers);
  // Whether a storage has died.
  bool IsDead() const;
  bool HasStorages(const TensorPointers& inputs) const;
  // Compares version counters. Views by Inductor have counters of their own, which are always 0.
  bool HasVersions(const TensorPointers& inputs) const;
  void TakeVersions(const TensorPointers& inputs);

  // Allocates the memory, if there is none, prepares the operands on the current stream, and waits,
  // so that every stream may read them afterwards. `whole_device`: waits for all work on the device
  // first. kNoMemory. REQUIRES: the storages live; the current stream is not being captured.
  Status Fill(bool whole_device);
};

// What a form is found by.
struct FormKey {
  FormKey(const Winner& winner, std::span<void* const> pointers);
  bool operator==(const FormKey&) const = default;
  struct Hash {
    size_t operator()(const FormKey& key) const;
  };

  const Winner* winner;
  c10::SmallVector<const void*, 2> pointers;  // of the frozen inputs
};

// Bytes of a device's memory; 0: unknown.
int64_t MemoryOf(c10::Device device);

}  // namespace cudaforge
