// Overwrites what a kernel may leave on the device outside of its buffers: shared memory, registers
// and local memory of every multiprocessor, by the seed with float32 numbers between 1 and 2, ones,
// twos or NaN.
//
// A kernel finds there what the last kernel on the same multiprocessor left, at least where that
// one belongs to the same context: shared memory and registers are not cleared at launch. What a
// kernel of another process finds is not specified (the driver saves and restores both when it
// switches contexts), and local memory belongs to a context. So the worker, in whose context the
// candidates run, must scrub before each run; the verifier's own scrub does not replace that.
//
// No promise that every byte is reached: the hardware places the blocks. The launch has two blocks
// of all the shared memory that a block may have for each multiprocessor, so that each gets one
// where nothing else runs.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "target/cuda/cuda_context.h"

namespace cudaforge {

// The kernels, for NVRTC: on_chip_scrub.cu, which CMake makes part of the program.
extern const char* const kScrubSource;

class OnChipScrub {
 public:
  // `cubin`: kScrubSource compiled for the context's device. Leaves the context current.
  static Result<OnChipScrub> Load(const CudaContextPtr& context, const std::string& cubin);

  // Starts the kernels on `stream` (about 20 microseconds in all). Thread-safe.
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
  unsigned local_blocks_ = 0;  // that fill the device
};

}  // namespace cudaforge
