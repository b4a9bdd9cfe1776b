// Overwrites shared memory, registers and local memory of every multiprocessor, by the seed with
// float32 numbers between 1 and 2, ones, twos or NaN. They are not cleared at launch, so a kernel
// can find data of the last kernel in the same context. So the worker, whose context candidates
// use, must scrub before each run; a scrub in the verifier is not enough.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "target/cuda/cuda_context.h"

namespace cudaforge {

// The kernels, for NVRTC: on_chip_scrub.cu, embedded by CMake.
extern const char* const kScrubSource;

class OnChipScrub {
 public:
  // `cubin`: kScrubSource compiled for the context's device. Leaves the context current.
  static Result<OnChipScrub> Load(const CudaContextPtr& context, const std::string& cubin);

  // Starts the kernels on `stream` (about 20 microseconds in all). Thread-safe. Two blocks of
  // maximal shared memory for each multiprocessor, so that each gets one if nothing else runs. The
  // hardware places the blocks, so bytes may be missed.
  Status Run(cu::Stream stream, uint64_t seed) const;

 private:
  OnChipScrub(CudaContextPtr context, CudaModule module)
      : context_(std::move(context)), module_(std::move(module)) {}

  CudaContextPtr context_;
  CudaModule module_;
  cu::Function shared_ = nullptr;
  cu::Function local_ = nullptr;
  unsigned multiprocessors_ = 0;
  unsigned shared_bytes_ = 0;  // of a block
  unsigned local_blocks_ = 0;  // fill the device
};

}  // namespace cudaforge
