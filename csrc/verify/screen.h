// The screen: every element of a candidate's output is compared with ATen's, on the device and in
// one pass. It condemns nothing: it counts, and it names the elements at which float64 should look.
//
// Errors are measured by the octave of ATen's value: |candidate - aten| / 2^floor(log2 |aten|), in
// the precision of the dtype (float32 for the half types; differences are rounded once). Where ATen
// is zero, they are |candidate|. So a tiny element that is all wrong ranks as high as a large one.
// Errors above 2^50 count as 2^50.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "signature/op_facts.h"
#include "signature/op_signature.h"
#include "verify/device_memory.h"

namespace cudaforge {

// What the bytes between strided elements held before the run: DeviceMemory::Fill of the whole
// output, StorageBytes() of it.
struct GapFill {
  FillPattern pattern = FillPattern::kNan;
  uint64_t seed = 0;
  DType dtype = DType::kFloat32;
};

struct ScreenRequest {
  TensorSpec spec;
  const void* aten = nullptr;       // device memory, in the spec's strides
  const void* candidate = nullptr;  // the same; any bytes
  Match match = Match::kTolerance;
  std::optional<GapFill> gaps;  // without: bytes between elements are not looked at
};

// An element at which the two differ, in an order of its own: see ScreenResult::worst.
struct Worst {
  int64_t index = 0;  // row-major
  double aten = 0;
  double candidate = 0;
  double error = 0;  // |candidate - aten|; infinite where NaN or an infinity is in one of the two
  double relative = 0;  // by the octave, see above; infinite likewise
};

inline constexpr size_t kScreenBands = 64;

// One band of |aten|: see ScreenResult::bands.
struct BandErrors {
  int64_t count = 0;
  double squares = 0;  // the sum of the squared relative errors; 0 in the last band
  double largest = 0;  // relative error; infinite in the last band where a mask differs
};

struct ScreenResult {
  int64_t elements = 0;
  // By `match`: kBitwise compares bytes, NaN payloads being free; the others compare numbers (-0
  // equals 0, any NaN any NaN). Integers and bools: bytes, so that a bool of 2 is no 1.
  int64_t unequal = 0;
  int64_t first_unequal = -1;  // row-major index of the one at the lowest address
  // NaN, +inf or -inf in one of the two and not in the other; among `unequal` as well.
  int64_t mask_unequal = 0;
  int64_t first_mask_unequal = -1;
  int64_t specials = 0;  // elements where ATen has NaN or an infinity
  // At most 64, by falling relative error. Each band gives its largest ones, at most one from each
  // part of the tensor (a tensor is cut into up to 8,192 parts of at least 256 elements). A part
  // that gave four gives no more but what is the largest of its band.
  std::vector<Worst> worst;
  // Band 0: ATen has zero. Bands 1 to 62: |aten| in [2^(b-42), 2^(b-41)), the first and the last of
  // them open-ended; the errors of each element are by its own octave nevertheless. Band 63: one of
  // the two is NaN or infinite.
  std::array<BandErrors, kScreenBands> bands;
  // With GapFill: bytes between elements that are not what they were. gaps_checked is false where
  // elements may overlap (strides of 0 and the like), and without GapFill.
  bool gaps_checked = false;
  FillDamage gaps;
};

// The band of a finite number. Denormal numbers count to the lowest normal octave of the dtype.
int ScreenBand(DType dtype, double aten);

// The same result on every run and, but for the rounding of `squares` (relative 1e-3), on CPU and
// CUDA. On CUDA 33 KiB come back, and at most 9 MiB of scratch memory are used.
// Errors: those of DeviceMemory. Not thread-safe on one DeviceMemory.
Result<ScreenResult> Screen(DeviceMemory& memory, const ScreenRequest& request);

}  // namespace cudaforge
