// Inputs for operations that a single element decides, where ordinary numbers tell little. any()
// and all() are the same everywhere on them, so that a constant would pass; what tells kernels
// apart is a group (the elements that one output looks at) in which one element decides, at the
// places that a loop's ends get wrong. Maxima are right on them from whatever number a kernel
// begins at; what tells is a group of numbers far below, which masks make: the lowest finite one,
// and -infinity. And a special value tells most where it is alone: beside others its own part in
// the result does not show, nor does its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "signature/op_signature.h"

namespace cudaforge {

// Whether the region has an any(), an all() or an output of booleans.
bool HasTruths(const OpSignature& signature);
// 1 where all that the region reduces it reduces by maxima (softmax and logsumexp are such), -1
// where by minima, else 0: sums and the like cannot take numbers so far out. Also 0 where another
// operation stands beside them that is not known to be harmless with such numbers.
int ExtremesOf(const OpSignature& signature);

// The groups of one input.
class DecidingGroups {
 public:
  enum class Kind { kTruths, kExtremes, kSpecials };
  // REQUIRES: HasTruths or ExtremesOf the region; for kExtremes and kSpecials a floating
  // signature.inputs[input].
  // Where such an operation of the region takes a tensor of this input's sizes, the groups are its
  // own (of a pooling, whole planes; of kSpecials, what any reduction, scan or norm takes as one);
  // else they are rows. Of kSpecials all is one group where all outputs are single numbers.
  // kSpecials: with `shares` inputs of this size, input number `share` has every `shares`-th group.
  DecidingGroups(const OpSignature& signature, size_t input, Kind kind, int64_t share = 0,
                 int64_t shares = 1);

  // In how many turns every pattern is met, in whatever group: 1 where there are many.
  int64_t turns() const;
  // The element at `position`. Each group takes one of the patterns in turn, from pattern
  // `turn` * (number of groups) on. Depends on its arguments alone.
  // kTruths: a background of zeros, of positive or of negative numbers; no other element, or one:
  //   the last, the first or one inside; zero, of the other sign, or NaN.
  // kExtremes: -infinity or the lowest number of the dtype, all over, or but for one element, and
  //   the opposites of all these, as the region may negate what it reduces (of minima the opposites
  //   come first).
  // kSpecials: one NaN or infinity at the last place, the first, the last but one, beside the
  //   middle, where loops by 8 to 64 elements begin or end, or anywhere; 0 for all other elements.
  double Value(const std::vector<int64_t>& position, int turn, uint64_t seed) const;

 private:
  double SpecialAt(int64_t number, int64_t place, uint64_t seed) const;

  Kind kind_;
  int64_t share_, shares_;
  double sign_ = 1;             // kExtremes
  double largest_ = 0;          // the dtype's
  std::vector<int64_t> sizes_;  // expanded dimensions count as one element
  std::vector<int64_t> inner_;  // by dimension: this many neighbours are of one group
  int64_t count_ = 1;
  int64_t length_ = 1;
};

// The input whose values decide: the largest of the floating ones; without any, the largest.
size_t DecidingInput(const OpSignature& signature);

}  // namespace cudaforge
