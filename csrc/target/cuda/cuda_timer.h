// Measures device time on one stream, with cold caches and without launch latency.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "base/status.h"
#include "target/cuda/cuda_context.h"
#include "target/target.h"

namespace cudaforge {

// Not thread-safe.
class CudaTimer {
 public:
  // Makes events, a buffer of twice the L2 and the hold kernel.
  static Result<std::unique_ptr<CudaTimer>> Create(CudaContextPtr context, cu::Stream stream);
  CudaTimer(const CudaTimer&) = delete;
  CudaTimer& operator=(const CudaTimer&) = delete;
  ~CudaTimer();

  // Queues writes over the whole L2, including persistent lines.
  Status EvictL2();
  // Evicts the L2, reads `warm`, then holds the stream while `enqueue` queues its work. Returns the
  // nanoseconds between events around the work. If the work itself waits for the device, the hold
  // ends after 2 ms, and the launches are part of the time.
  Result<double> Time(const std::function<Status()>& enqueue, std::span<const WarmBytes> warm = {});

 private:
  explicit CudaTimer(CudaContextPtr context, cu::Stream stream)
      : context_(std::move(context)), stream_(stream) {}
  Status Init();
  Status Warm(const WarmBytes& warm);
  Status Hold();
  Status Release();

  CudaContextPtr context_;
  cu::Stream stream_;
  std::unique_ptr<CudaModule> module_;
  cu::Function hold_ = nullptr;
  cu::Event start_ = nullptr;
  cu::Event end_ = nullptr;
  cu::DevicePtr flush_ = 0;
  size_t flush_words_ = 0;
  unsigned* go_ = nullptr;       // pinned host memory
  cu::DevicePtr go_device_ = 0;  // the same word's device address
};

// The hold kernel as PTX, which the driver assembles, so that timing needs no NVRTC.
extern const char* const kHoldPtx;

}  // namespace cudaforge
