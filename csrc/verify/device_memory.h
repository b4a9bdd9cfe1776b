// The verifier's operations on memory of the region's device: fill before a candidate runs, check
// afterwards, copy and spoil. CPU memory, or CUDA memory in the verifier's context.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "signature/op_signature.h"
#include "verify/device/fill.h"
#include "verify/own_kernels.h"

namespace cudaforge {

enum class FillPattern {
  kNan,      // every byte 0xff
  kNumbers,  // numbers of a dtype: floats of either sign from 0.25 to 4, integers 0 to 127,
             // bools 0 and 1
  kBytes,    // random bytes
  kZero,
  kOnes,  // the number 1
};

// Bytes that differ from what Fill wrote.
struct FillDamage {
  int64_t changed = 0;
  int64_t first = -1;  // position of the first difference
};

// Sizes and positions are in bytes; `data` may have any alignment, and `bytes` may be 0. Not
// thread-safe. On CUDA, work is ordered on the legacy default stream. Fill, Spoil and Copy may
// return early: call Synchronize before another process uses the memory. kMemoryFault: an address
// is not mapped; the context is lost then.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // Sets byte i to a function of pattern, dtype, seed and i, the same on CPU and CUDA. A candidate
  // could find the seed from the bytes: use a new random seed for each buffer and run.
  virtual Status Fill(void* data, int64_t bytes, FillPattern pattern, uint64_t seed,
                      DType dtype = DType::kFloat32) = 0;
  // Compares in one pass with what Fill wrote with the same arguments.
  virtual Result<FillDamage> CheckFill(const void* data, int64_t bytes, FillPattern pattern,
                                       uint64_t seed, DType dtype = DType::kFloat32) = 0;
  // Inverts one 8-byte word in each 256, or all bytes if there are fewer than 8. A second call with
  // the same seed restores the data.
  virtual Status Spoil(void* data, int64_t bytes, uint64_t seed) = 0;
  // REQUIRES: the ranges do not overlap.
  virtual Status Copy(void* to, const void* from, int64_t bytes) = 0;
  virtual Status CopyToHost(void* host, const void* data, int64_t bytes) = 0;
  virtual Status CopyFromHost(void* data, const void* host, int64_t bytes) = 0;
  virtual Status Synchronize() = 0;

  // The kernels; nullptr on the CPU.
  virtual OwnKernels* kernels() = 0;
  // Memory for results, reused until a larger size is requested. REQUIRES: CUDA.
  virtual Result<void*> Scratch(int64_t bytes) = 0;
};

std::unique_ptr<DeviceMemory> MakeCpuMemory();
std::unique_ptr<DeviceMemory> MakeCudaMemory(std::shared_ptr<OwnKernels> kernels);

// The pattern in the kernels' form.
device::FillRule RuleOf(FillPattern pattern, DType dtype);

}  // namespace cudaforge
