// The screen: compares every element of a candidate's output with ATen's, on the device and in one
// pass. It decides nothing: it counts, and selects elements to check by float64. Errors are
// relative to the octave of ATen's value: |candidate - aten| / 2^floor(log2 |aten|), in the dtype's
// precision (float32 for half types; differences are rounded once), or |candidate| where ATen is
// zero. So wrong tiny elements rank as high as large ones. Errors are capped at 2^50.
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

// The bytes between strided elements before the run: DeviceMemory::Fill of the whole output,
// StorageBytes() of it.
struct GapFill {
  FillPattern pattern = FillPattern::kNan;
  uint64_t seed = 0;
  DType dtype = DType::kFloat32;
};

struct ScreenRequest {
  TensorSpec spec;
  const void* aten = nullptr;       // device memory, in the spec's strides
  const void* candidate = nullptr;  // in the same strides; any bytes
  Match match = Match::kTolerance;
  std::optional<GapFill> gaps;  // without: bytes between elements are not checked
};

// An element at which the two differ. For the order see ScreenResult::worst.
struct Worst {
  int64_t index = 0;  // row-major
  double aten = 0;
  double candidate = 0;
  double error = 0;     // |candidate - aten|; infinite if either is NaN or infinite
  double relative = 0;  // by the octave, see above; infinite in the same cases
};

inline constexpr size_t kScreenBands = 64;

// One band of |aten|: see ScreenResult::bands.
struct BandErrors {
  int64_t count = 0;
  double squares = 0;  // the sum of the squared relative errors; 0 in the last band
  double largest = 0;  // relative error; infinite in the last band if a mask differs
};

struct ScreenResult {
  int64_t elements = 0;
  // By `match`: kBitwise compares bytes, except NaN payloads. The others compare numbers (-0 equals
  // 0, any NaN any NaN). Integers and bools are compared as bytes, so a bool of 2 differs from 1.
  int64_t unequal = 0;
  int64_t first_unequal = -1;  // row-major index of the element at the lowest address
  // NaN, +inf or -inf in only one of the two; included in `unequal`.
  int64_t mask_unequal = 0;
  int64_t first_mask_unequal = -1;
  int64_t specials = 0;  // elements where ATen has NaN or an infinity
  // At most 64, by decreasing relative error. Each band contributes its largest, at most one from
  // each part of the tensor (up to 8,192 parts of at least 256 elements). A part contributes at
  // most four, except a band's largest.
  std::vector<Worst> worst;
  // Band 0: ATen is zero. Bands 1 to 62: |aten| in [2^(b-42), 2^(b-41)), the first and last
  // open-ended. Errors are by each element's own octave. Band 63: one of the two is NaN or
  // infinite.
  std::array<BandErrors, kScreenBands> bands;
  // With GapFill: the number of changed bytes between elements. gaps_checked is false without
  // GapFill, and if elements may overlap (strides of 0).
  bool gaps_checked = false;
  FillDamage gaps;
};

// The band of a finite number. Denormal numbers count as the lowest normal octave of the dtype.
int ScreenBand(DType dtype, double aten);

// Deterministic, and equal on CPU and CUDA except for the rounding of `squares` (relative 1e-3). On
// CUDA, transfers 33 KiB and uses at most 9 MiB of scratch memory. Errors: those of DeviceMemory.
// Not thread-safe on one DeviceMemory.
Result<ScreenResult> Screen(DeviceMemory& memory, const ScreenRequest& request);

}  // namespace cudaforge
