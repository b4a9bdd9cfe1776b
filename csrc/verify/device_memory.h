// What the verifier does to memory on the region's device: fills it before a candidate runs, checks
// it after that, copies and spoils it. CPU memory, or CUDA memory in the verifier's own context.
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
  kNumbers,  // ordinary numbers of a dtype: floats of either sign from 0.25 to 4, integers from 0
             // to 127, bools 0 and 1
  kBytes,    // random bytes
  kZero,
  kOnes,  // the number 1
};

// Bytes that are not what Fill wrote.
struct FillDamage {
  int64_t changed = 0;
  int64_t first = -1;  // position of the first one
};

// Not thread-safe. Sizes and positions are in bytes; `data` may have any alignment, and `bytes` may
// be 0. On CUDA: work is ordered on the legacy default stream, and Fill, Spoil and Copy may
// return before it is done (call Synchronize before another process uses the memory); an error is
// kMemoryFault where an address is not mapped, after which the context is lost.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // Byte i becomes a function of pattern, dtype, seed and i alone, the same on CPU and CUDA. The
  // bytes give the seed away to a candidate that reads them: use a fresh random seed for each
  // buffer and run.
  virtual Status Fill(void* data, int64_t bytes, FillPattern pattern, uint64_t seed,
                      DType dtype = DType::kFloat32) = 0;
  // Compares with what Fill wrote with the same arguments, in one pass.
  virtual Result<FillDamage> CheckFill(const void* data, int64_t bytes, FillPattern pattern,
                                       uint64_t seed, DType dtype = DType::kFloat32) = 0;
  // Inverts all bits of one 8-byte word in each 256, or of all bytes where there are fewer than 8.
  // A second call with the same seed restores the data.
  virtual Status Spoil(void* data, int64_t bytes, uint64_t seed) = 0;
  // REQUIRES: the two do not overlap.
  virtual Status Copy(void* to, const void* from, int64_t bytes) = 0;
  virtual Status CopyToHost(void* host, const void* data, int64_t bytes) = 0;
  virtual Status CopyFromHost(void* data, const void* host, int64_t bytes) = 0;
  virtual Status Synchronize() = 0;

  // The kernels; nullptr on the CPU.
  virtual OwnKernels* kernels() = 0;
  // Memory for results, kept until a larger size is asked for. REQUIRES: CUDA.
  virtual Result<void*> Scratch(int64_t bytes) = 0;
};

std::unique_ptr<DeviceMemory> MakeCpuMemory();
std::unique_ptr<DeviceMemory> MakeCudaMemory(std::shared_ptr<OwnKernels> kernels);

// The pattern as the kernels know it.
device::FillRule RuleOf(FillPattern pattern, DType dtype);

}  // namespace cudaforge
