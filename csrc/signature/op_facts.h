// Properties of ATen's operators: one row an operator, for all its overloads. All other code asks
// this table, except the lowerings.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cudaforge {

enum class OpKind {
  kUnknown,    // the table has no row: nothing is assumed
  kPointwise,  // an element of the result depends on the operands' elements at its place
  kMoves,      // copies elements to other places
  kReduces,    // an element of the result depends on many: reductions, norms, pooling, losses
  kScans,
  kContracts,  // matrix products, convolutions, attention
  kAllocates,  // returns uninitialised memory
  kDraws,      // random numbers
};

// Kinds of regions, the heaviest first. A region has the first kind that any of its operators has.
enum class OpFamily {
  kAttention,
  kConvolution,
  kMatmul,
  kPooling,
  kLoss,
  kScan,
  kSoftmax,
  kNorm,
  kReduction,
  kOther,
};
std::string_view OpFamilyName(OpFamily family);  // "attention"

// Words in the names of functions, modules and graph nodes that may become an operator of some
// family: "softmax", "linear". A superset: not every one of these names becomes one.
const std::vector<std::string_view>& FamilyWords();

// How a floating result is compared with ATen's.
enum class Match {
  kTolerance,  // the numerics contract, see verify/yardstick.h
  kEqual,      // equal as numbers: -0.0 == 0.0, any NaN == any NaN; if ATen is exact (relu, max)
  kBitwise,    // ATen's bytes, including the sign of zero; NaN payloads may differ
};

// The part of its operands that an element of the result needs. Of a backward operator: the part of
// the forward's input, which has the gradient's sizes.
enum class OpNeeds {
  kEverything,
  kItsPlace,  // the elements at its own place, after broadcasting
  kAxes,      // all elements along the dimensions in argument `axes` (a number or a list); without
              // that argument, all elements
  kTrailing,  // everything along the last dimensions, as many as the list at argument `axes` has
  kGroup,     // one sample's channel group; argument `axes` is the number of groups
  kChannel,   // all samples and places of its channel, which is dimension 1
  kWindow,    // a window of the last dimensions
  kRowAndColumn,  // one row of the left operand, one column of the right
};

// How dimensions of the results map to the operands. It decides which dimensions can be cut into
// slices without changing the results there (verify/axes.h).
enum class OpDims {
  kUnknown,     // nothing is known
  kAligned,     // operands and results are broadcast together, from the last dimension
  kReshaped,    // the same elements in the same order, in other dimensions
  kPermuted,    // by the list at argument 1
  kTransposed,  // arguments 1 and 2 are swapped; without them, the only two dimensions
  kExpanded,    // to the sizes at argument 1
  kFilled,      // of the sizes at argument 0
  kRepeated,    // as often as the list at argument 1 says
  kPadded,      // by the list at argument 1: two numbers a dimension, the last dimension first
  kJoined,      // a list of tensors, concatenated along argument 1
  kStacked,     // the same along a new dimension
  kAlongAxis,   // dimensions in argument `axes` have places of their own; the others stay
  kLastTwo,     // the last two dimensions have
  kLookedUp,    // rows of the first operand, by the indices in the second
  kIndexed,     // by a list of tensors of indices
  kGathered,    // by a tensor of indices along argument 1
  kReduced,     // reduced along argument `axes`, which is kept or not; see OpNeeds::kAxes
  kTrailing,    // reduced along the last dimensions, as many as the list at `axes` has
  kGroups,      // of [N, C, ...], by groups of channels; argument `axes` is the number of groups
  kChannels,    // of [N, C, ...], along all but C; or along none, see OpNeeds
  kWindows,     // the last `windows` dimensions have places of their own
  kLabels,      // of [N, C, ...] and labels [N, ...]
  kCounted,     // the gradient of kLookedUp
  kProduct,     // [b, M, K] at argument `left`, [b, K, N] in the next
  kConvolution,
  kConvolutionBackward,
  kAttention,
};

// How an operator's sums are rewritten as plain operators, to take them in other orders.
enum class OpSums {
  kNone,
  kSum,
  kMean,
  kVariance,
  kDeviation,
  kSoftmax,
  kLogSoftmax,
  kLogSumExp,
  kSoftmaxBackward,
  kLogSoftmaxBackward,
  kMoments,  // a norm by mean and deviation
  kRms,
  kScan,
  kLoss,  // of labels
  kProduct,
  kConvolution,
};

// How the floating-point operations are counted.
enum class OpWork {
  kElements,  // one for each element of the largest operand or result
  kNone,      // a view
  kProduct,   // two per element of the result and element of a row of argument `left`
  kConvolution,
  kAttention,
};

// What the fp64 oracle runs if ATen has no float64 kernel: a few plain operators.
enum class Float64 {
  kItself,
  kProduct,        // mm(a, b)
  kScaledProduct,  // mm(a * scale of a, b * scale of b) + bias, by the scale of the result
  kScaledRows,     // mm(a, b transposed) * scales
};

// The meaning of an operand: which values it may have, and how strictly results are compared.
enum class OperandRole {
  kValue,           // any number
  kIndex,           // an integer in [0, limit)
  kTarget,          // a label: an integer in [0, limit), or ignore_index
  kPositive,        // a variance, a reciprocal standard deviation, a total weight
  kProbability,     // in (0, 1)
  kLogProbability,  // below 0
  kTanh,            // in (-1, 1)
  kWeight,  // a weight or mean of an operator with its own order of operations. Another order may
            // make NaN of infinities, or round products of denormals differently
  kQuery,   // of attention: may hold NaN but no infinities, because the result for a row of scores
            // that are all -infinity depends on PyTorch's kernel
  kKey,     // keys, if no query is masked: NaN at single places
  kSeen,    // values, if no query is masked: NaN at single places, but not in sets where keys have
            // NaN, because a key's NaN hides a value's
  kFinite,  // no NaN, no infinities. Masked keys and values: whether a masked NaN propagates is
            // undefined. Also queries, keys and values of fewer than 16 keys on a CPU, where ATen's
            // kernel may lose a NaN
  kMask,    // added to the scores: -infinity masks single keys, all keys before or after one, or a
            // whole row, whose result is zeros. Or booleans from which the numbers are made
};

// Where the limit of an index or label is found.
enum class IndexLimit {
  kNone,
  kSizeOf,          // the size of argument `source` in dimension `detail`
  kSizeOfDim,       // its size in the dimension that argument `detail` names
  kLastTwoSizes,    // the product of the last two sizes of argument `source`
  kLastThreeSizes,  // of the last three
  kArgument,        // argument `source`, a number
};

struct OperandFacts {
  int argument = -1;  // its position in the schema; -1: attention's keyword "attn_mask"
  OperandRole role = OperandRole::kValue;
  IndexLimit limit = IndexLimit::kNone;
  int source = 0;
  int detail = 0;
  int ignore = -1;  // kTarget: the argument that holds ignore_index
};

// What a backward operator reads of the forward's results on the same input. It must be consistent
// with that input.
enum class Saved {
  kNothing,
  kMoments,           // means and reciprocal standard deviations, at arguments with these roles
  kRms,               // reciprocal root mean squares
  kSoftmax,           // the forward's result
  kLogSoftmax,        // the forward's result
  kPlacesOfMaxima2d,  // the indices of the maxima of windows
  kPlacesOfMaxima3d,
};

struct OpFacts {
  OpKind kind = OpKind::kUnknown;
  OpFamily family = OpFamily::kOther;
  Match match = Match::kTolerance;
  OpNeeds needs = OpNeeds::kEverything;
  int axes = -1;  // see OpNeeds
  OpDims dims = OpDims::kUnknown;
  OpSums sums = OpSums::kNone;
  int windows = 0;  // see OpDims
  OpWork work = OpWork::kElements;
  int left = 0;                               // see OpWork
  std::array<OperandFacts, 4> operands = {};  // those with roles; the rest can have any values
  // Regions are made around it although no row generator lowers it. Agents or special generators
  // write its kernels.
  bool heavy = false;
  bool backward = false;
  // Pointwise: safe for all numbers up to the dtype's largest.
  bool tame = false;
  // Pointwise: products and quotients, which may overflow in one order and not in another.
  bool multiplies = false;
  // Pointwise: has one right answer for all numbers, including NaN and infinities.
  bool settled = false;
  bool of_positive = false;  // pointwise: NaN for all negative numbers
  bool keeps_role = false;   // the first operand's elements come out unchanged, with their role
  bool makes_mask = false;   // makes a mask of numbers from booleans, or a mask from another
  bool picks = false;        // reads no more elements of its first operand than it returns
  bool is_truth = false;     // any, all
  int extreme = 0;           // 1: reduces by a maximum (softmax does); -1: by a minimum
  int place = -1;            // the output with the index of one element along `axes`
  int free_places = -1;  // the output of indices along `axes`, in any order among equal elements
  int weights = -1;      // the output that is a sum of weights: 0 if argument 3, the reduction, is
  int mean = -1;         // the output that is a mean, computed with a variance
  int causal = -1;       // attention: the argument is_causal
  int norm_weight = -1;  // norms: the argument that is the weight
  int epsilon = -1;      // norms: the argument that is added to a given variance
  Saved saved = Saved::kNothing;
  Float64 float64 = Float64::kItself;
  std::string_view region_op = {};  // see RegionOpName
};

// Returns the row of "aten::sum", "aten::sum.dim_IntList" or "sum"; a default OpFacts if there is
// none. The result lives forever. Thread-safe.
const OpFacts& FactsOf(std::string_view op);

// The heavy operators, sorted: "aten::mm".
const std::vector<std::string>& HeavyOps();

// Returns the call that selects between several kernels in PyTorch:
// "aten::scaled_dot_product_attention" for each attention kernel. Others: `op` itself. The result
// is part of `op` or lives forever.
std::string_view RegionOpName(std::string_view op);

// The call that gives a tensor the sizes in its second argument, for kReshaped and kExpanded.
// Replaces views of these kinds.
std::string_view CallToSizes(OpDims dims);

// The call that copies its one operand.
std::string_view CallToCopy();

// Returns the overloads that PyTorch calls for a composite one: "aten::softmax.int" ->
// {"aten::_softmax"}. Empty if none is known.
const std::vector<std::string>& PartsOf(std::string_view overload);

}  // namespace cudaforge
