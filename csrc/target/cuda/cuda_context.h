// The primary context of one device, which PyTorch in the same process shares, and owners of
// objects in it. Each owner keeps the context alive.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "signature/device_arch.h"
#include "target/cuda/driver_api.h"

namespace cudaforge {

class CudaContext {
 public:
  // kUnavailable: no driver or device. kInvalidArgument: an index out of range. Leaves the context
  // current.
  static Result<std::shared_ptr<const CudaContext>> Retain(int device_index);
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;
  ~CudaContext();

  const cu::DriverApi& api() const { return api_; }
  cu::Device device() const { return device_; }
  cu::Context handle() const { return context_; }
  // Makes the context current on the calling thread.
  Status MakeCurrent() const;
  Result<int> Attribute(cu::Attribute attribute) const;
  // The device as a target: "cuda:sm_90a" and the driver's properties.
  Result<DeviceArch> Describe() const;
  // DriverApi::Check; also remembers errors that lose the context. Thread-safe.
  Status Check(cu::Result result, const char* what) const;
  bool poisoned() const { return poisoned_.load(std::memory_order_relaxed); }

 private:
  CudaContext(const cu::DriverApi& api, cu::Device device, cu::Context context)
      : api_(api), device_(device), context_(context) {}

  const cu::DriverApi& api_;
  const cu::Device device_;
  const cu::Context context_;
  mutable std::atomic<bool> poisoned_{false};
};

using CudaContextPtr = std::shared_ptr<const CudaContext>;

// Restores the thread's current context, or none, when destroyed. The CUDA runtime's current
// device, which is the program's, follows the current context.
class CurrentContextKeeper {
 public:
  explicit CurrentContextKeeper(const cu::DriverApi& api) : api_(api) {
    api_.ContextGetCurrent(&context_);
  }
  CurrentContextKeeper(const CurrentContextKeeper&) = delete;
  CurrentContextKeeper& operator=(const CurrentContextKeeper&) = delete;
  ~CurrentContextKeeper() { api_.ContextSetCurrent(context_); }

 private:
  const cu::DriverApi& api_;
  cu::Context context_ = nullptr;
};

// A loaded module (cubin, or PTX for the driver to assemble). Move-only.
class CudaModule {
 public:
  // kCorruption: the driver refuses the image. Leaves the context current; the destructor does not.
  static Result<CudaModule> Load(CudaContextPtr context, const std::string& image);
  CudaModule(CudaModule&& other) noexcept
      : context_(std::move(other.context_)), module_(std::exchange(other.module_, nullptr)) {}
  CudaModule& operator=(CudaModule&&) = delete;
  CudaModule(const CudaModule&) = delete;
  CudaModule& operator=(const CudaModule&) = delete;
  ~CudaModule();

  // kInvalidArgument: no such kernel. Loads it at once, so that a first launch under capture is
  // legal.
  Result<cu::Function> Kernel(const std::string& name) const;

 private:
  CudaModule(CudaContextPtr context, cu::Module module)
      : context_(std::move(context)), module_(module) {}
  CudaContextPtr context_;
  cu::Module module_;
};

}  // namespace cudaforge
