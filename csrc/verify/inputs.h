// The inputs candidates are tried on: raw bytes made from a seed, laid out by each input's strides.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "signature/op_signature.h"
#include "signature/roles.h"
#include "worker/input_set.h"

namespace cudaforge {

enum class InputKind {
  kNormal,          // standard normal numbers
  kUniform,         // [0, 1): biased sums, no cancellation
  kRowScales,       // each row times its own power of two, 2^-30 to 2^30 (float16: 2^-8 to 2^8);
                    // where all is integers: of every magnitude up to 2^62 (int32: 2^30)
  kSpecialValues,   // some rows with NaN, some with infinities; the rest normal
  kZerosDenormals,  // some rows with both zeros and denormals; the rest normal. Smaller inputs
                    // (weights, scales, masks) have such elements all over
  kAllEqual,        // one number everywhere (3.75: sums of it are exact)
  kMixed,  // rows of different kinds in one tensor: far from zero, cancelling, sparse, tiny, normal
  kSmallIntegers,  // integers in [-3, 3]: many answers are exact
  kOneUnlike,    // for any() and all(): each group that is looked at as one holds a single number,
                 // in most groups but for one element: the last, the first, or one inside
  kNanOperands,  // a few NaN in each input that is smaller than the largest, and in attention's
                 // keys; the rest normal. The largest ones, which other sets try, are normal here,
                 // as NaN would hide what becomes of the small ones'
  kInfiniteOperands,  // the same with infinities of both signs; in attention, which takes none,
                      // NaN in values, and in queries that are smaller than the largest input
  kFarOut,  // for maxima and minima: groups of -infinity, of the lowest number, and the opposites
  kOneSpecial,  // a single NaN or infinity in each group that is taken as one: by turns of each
                // kind at each of the places that loops get wrong. The rest is between 0.5 and 1.6
                // or -1.6 and -0.5: long products neither vanish, as zero times infinity is NaN,
                // nor overflow. Of several inputs as large as the largest each has it in some of
                // the groups
};

// The sets that tell something about this signature: only those of an integer kind when no input is
// floating, those of small operands when a floating input is smaller than the largest and its role
// takes such values. kOneSpecial where one of the largest may hold any number, more than once where
// there are few groups, each a turn of its own. A region with any(), all() or an output of booleans
// gets kOneUnlike too, up to eight times: on ordinary numbers such answers are the same everywhere.
// kFarOut likewise where all that is reduced is by maxima, or by minima.
std::vector<InputKind> InputKindsFor(const OpSignature& signature,
                                     std::span<const InputRole> roles);
// Whether an input holds floating-point numbers.
bool HasFloatingInput(const OpSignature& signature);
// Whether sets of this kind come in turns, and are the same for every seed but for single places
// and, of kOneSpecial, for the ordinary numbers.
bool HasTurns(InputKind kind);
// Whether sets of this kind ask for no more alignment than the specs promise.
bool IsLeastAligned(InputKind kind);

// Deterministic in (signature, kind, seed, turn). Bytes between strided elements hold 0xff (NaN in
// every floating dtype). Inputs that an op reads as indices are legal.
// `turn`: of kinds that have turns, the patterns that the groups begin with.
InputSet MakeInputs(const OpSignature& signature, std::span<const InputRole> roles, InputKind kind,
                    uint64_t seed, int turn = 0);

// The elements in row-major order, floating ones moved up or down by one rounding unit of the
// dtype they are computed in (float64: at most one): what the oracle does with them measures how
// sensitive the region is. The unit is the bound of one operation's error, underflow included:
// |v| ComputeRoundoff + ComputeUnderflow (Higham, Accuracy and Stability of Numerical Algorithms,
// 2nd ed., equation 2.8). Zeros, infinities, NaN and the largest finite numbers stay.
std::vector<double> Perturbed(const TensorSpec& spec, const std::string& bytes, uint64_t seed);

}  // namespace cudaforge
