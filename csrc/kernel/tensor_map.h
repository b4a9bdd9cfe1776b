// Tensor maps (TMA descriptors) of a launch plan, checked and evaluated for one signature.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "kernel/candidate.h"
#include "signature/op_signature.h"

namespace cudaforge {

inline constexpr size_t kMaxTensorMaps = 32;  // of a plan: the limit of Candidate::FromJson

// In the units of cuTensorMapEncodeTiled, the innermost dimension first.
struct EvaluatedTensorMap {
  DType dtype = DType::kFloat32;
  std::vector<uint64_t> sizes;    // elements
  std::vector<uint64_t> strides;  // bytes; one fewer than sizes
  std::vector<uint32_t> box;      // elements
  int64_t swizzle = 0;            // bytes
};

// Evaluates a map of `plan`. docs/formats.md has the rules. kInvalidArgument: it breaks one.
// kUnsupported: a map of an in-out operand. A valid map reaches no byte outside of its
// buffer, and the buffer's address is a multiple of 16 in every launch.
Result<EvaluatedTensorMap> EvaluateTensorMap(const TensorMap& map, const LaunchPlan& plan,
                                             const OpSignature& signature);

}  // namespace cudaforge
