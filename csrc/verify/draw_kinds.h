// What a set's inputs hold, by what each input means to the region.
#pragma once

#include <cstdint>
#include <span>

#include "signature/op_signature.h"
#include "signature/roles.h"
#include "verify/device/drawn_tensor.h"

namespace cudaforge {

// What a set of inputs is about. "Large" inputs have as many elements as the largest floating one.
enum class DrawRecipe {
  kNormal,
  kUniform,
  kRowScales,       // large: each row times a power of two, 2^-30 to 2^30 (float16: 2^-8 to 2^8);
                    // 2^-60 to 2^90 where they are `far`.
                    // Where all is integers: of every magnitude
  kSpecialRows,     // large: some rows with many NaN, some with many infinities, half with none
  kZerosDenormals,  // zeros of both signs and denormals, alone and among others; probabilities near
                    // 0 and 1
  kAllEqual,        // one number everywhere, sums of which are exact
  kMixed,           // large: rows of sixteen kinds
  kSmallIntegers,   // whole numbers, bytes and rows with a single 1: many answers are exact
  kRowConstant,     // large: one number a row, sums of which are exact
  kByPosition,      // large: an element's place decides its size
  kLastTenth,       // large: the last tenth of each group decides
  kWide,            // large: neighbours of very different sizes, and rows that begin alike
  kNanOperands,     // single NaN in smaller inputs, and in attention's keys; the rest normal
  kInfiniteOperands,  // infinities there; NaN in attention's values and smaller queries
  kOneSpecial,        // large: one NaN or infinity in a group, the rest of size 1
  kPackedSpecials,    // the same in half of the groups, rows of zeros, denormals and many specials
  kOneUnlike,         // for any() and all(): groups that one element decides
  kFarOut,            // for maxima and minima: groups of the lowest numbers, or the largest
  kIgnoredLabels,     // normal; all labels are ignored
  kOneLabel,          // normal; all labels are one
  kMeeting,           // pointwise: zeros, infinities, NaN, nearly equal numbers and the ends of the
                      // dtypes, so that all of them meet; rows of every magnitude
  kNextAbove,         // large: rows of numbers next to each other, for what picks one of them;
                      // integers beyond what a float tells apart
};

// One input of a set.
struct DrawnInput {
  const TensorSpec* spec = nullptr;
  InputRole role;
  bool large = false;
  bool integral = false;               // the region has integers and booleans only
  std::span<const int64_t> constants;  // the region's, where `integral`
  bool far = false;       // numbers of up to 2^90 overflow in no right kernel of the region
  bool positive = false;  // a logarithm or a root is taken: normal numbers give NaN, and one zero
                          // makes a sum of logarithms infinite
  bool product = false;   // the region has a product, whose zeros must not hide NaN and infinities
  // Of pointwise regions:
  bool alone = false;          // one operator computes; what it gives is settled for all numbers
  bool bears_largest = false;  // even for those at the ends of the dtype
  int operands = 0;            // inputs that are any numbers
  bool bears_zero = false;     // of a variance: a number is added to it
  bool variance = false;       // of a norm that is given it
};

// Sets the kinds of rows of `tensor`, and the kind of its gaps. `random`, `shared`: secret; all
// inputs of a set have `shared` in common.
void SetKinds(const DrawnInput& input, DrawRecipe recipe, uint64_t random, uint64_t shared,
              device::DrawnTensor* tensor);

}  // namespace cudaforge
