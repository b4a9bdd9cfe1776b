// The contents of a set's inputs, by each input's role in the region.
#pragma once

#include <cstdint>
#include <span>

#include "signature/op_signature.h"
#include "signature/roles.h"
#include "verify/device/drawn_tensor.h"

namespace cudaforge {

// The topic of a set of inputs. "Large" inputs have as many elements as the largest floating one.
enum class DrawRecipe {
  kNormal,
  kUniform,
  kRowScales,         // large: each row times a power of two, 2^-30 to 2^30 (float16: 2^-8 to 2^8);
                      // 2^-60 to 2^90 if `far`. Integers: of every magnitude
  kSpecialRows,       // large: some rows with many NaN, some with many infinities, half with none
  kZerosDenormals,    // zeros of both signs and denormals, alone and mixed; probabilities near
                      // 0 and 1
  kAllEqual,          // one number everywhere, whose sums are exact
  kMixed,             // large: rows of sixteen kinds
  kSmallIntegers,     // integers, bytes and rows with a single 1: many answers are exact
  kRowConstant,       // large: one number a row, whose sums are exact
  kByPosition,        // large: the size of an element depends on its place
  kLastTenth,         // large: the last tenth of each group dominates
  kWide,              // large: neighbours of very different sizes, and rows that begin alike
  kNanOperands,       // single NaN in smaller inputs, and in attention's keys; the rest normal
  kInfiniteOperands,  // infinities there; NaN in attention's values and smaller queries
  kOneSpecial,        // large: one NaN or infinity in a group, the rest of size 1
  kPackedSpecials,    // the same in half of the groups, rows of zeros, denormals and many specials
  kOneUnlike,         // for any() and all(): groups that one element decides
  kFarOut,            // for maxima and minima: groups of the lowest or the largest numbers
  kIgnoredLabels,     // normal; all labels are ignored
  kOneLabel,          // normal; all labels are equal
  kMeeting,    // pointwise: all pairs of zeros, infinities, NaN, nearly equal numbers and limits
               // of the dtypes; rows of every magnitude
  kNextAbove,  // large: rows of adjacent numbers, for operators that select one;
               // integers beyond a float's precision
};

// One input of a set.
struct DrawnInput {
  const TensorSpec* spec = nullptr;
  InputRole role;
  bool large = false;
  bool integral = false;               // the region has only integers and booleans
  std::span<const int64_t> constants;  // the region's, where `integral`
  bool far = false;       // numbers up to 2^90 overflow in no correct kernel of the region
  bool positive = false;  // a logarithm or root is taken: negative numbers give NaN, and a zero
                          // makes a sum of logarithms infinite
  bool product = false;   // the region has a product, whose zeros must not hide NaN and infinities
  // For pointwise regions:
  bool alone = false;          // one operator computes; its result is defined for all numbers
  bool bears_largest = false;  // also at the dtypes' limits
  int operands = 0;            // inputs that can have any values
  bool bears_zero = false;     // of a variance: a number is added to it
  bool variance = false;       // of a given norm
};

// Sets the kinds of rows of `tensor`, and the kind of its gaps. `random`, `shared`: secret.
// `shared` is the same for all inputs of a set.
void SetKinds(const DrawnInput& input, DrawRecipe recipe, uint64_t random, uint64_t shared,
              device::DrawnTensor* tensor);

}  // namespace cudaforge
