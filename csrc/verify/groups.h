// Inputs for any() and all(). On ordinary numbers such a reduction is the same everywhere, so that
// a constant would pass; what tells kernels apart is a group (the elements that one output looks
// at) in which a single element decides, at the places that a loop's ends get wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "signature/op_signature.h"

namespace cudaforge {

// Whether the region has an any(), an all() or an output of booleans.
bool HasTruths(const OpSignature& signature);

// The groups of one input.
class TruthGroups {
 public:
  // REQUIRES: signature.inputs[input]. Where an any() or all() of the region takes a tensor of this
  // input's sizes, the groups are its own; else they are rows.
  TruthGroups(const OpSignature& signature, size_t input);

  int64_t count() const { return count_; }
  // The element at `position`. Each group takes one of kPatterns patterns in turn, from pattern
  // `turn` * count() on: a background of zeros, of positive or of negative numbers; no other
  // element, or one: the last, the first or one inside; zero, of the other sign, or NaN. Depends on
  // its arguments alone.
  double Value(const std::vector<int64_t>& position, int turn, uint64_t seed) const;

  static constexpr int64_t kPatterns = 16;

 private:
  std::vector<int64_t> sizes_;  // expanded dimensions count as one element
  std::vector<bool> inside_;    // by dimension: of the group, or of the groups' number
  int64_t count_ = 1;
  int64_t length_ = 1;
};

// The input whose values decide: the largest of the floating ones; without any, the largest.
size_t TruthInput(const OpSignature& signature);

}  // namespace cudaforge
