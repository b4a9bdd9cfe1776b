// Facts of ATen's operators: one row an operator, for all its overloads. Every part asks this
// table; beside its lowerings, no part keeps names of operators of its own.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cudaforge {

enum class OpKind {
  kUnknown,    // the table has no row: nothing is taken for granted
  kPointwise,  // an element of the result is made of the operands' elements at its place
  kMoves,      // elements come out as they went in, at other places
  kReduces,    // an element of the result is made of many: reductions, norms, pooling, losses
  kScans,
  kContracts,  // matrix products, convolutions, attention
  kAllocates,  // returns uninitialised memory
  kDraws,      // random numbers
};

// Kinds of regions, the heaviest first: a region is of the first kind that any of its operators is.
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

// Parts of the names by which PyTorch's functions, modules and Dynamo's graphs call what becomes an
// operator of some family: "softmax", "linear". Generous: a name may have one and become none.
const std::vector<std::string_view>& FamilyWords();

// How a floating result is compared with ATen's.
enum class Match {
  kTolerance,  // the numerics contract, see verify/yardstick.h
  kEqual,    // equal as numbers: -0.0 equals 0.0, any NaN any NaN; where ATen is exact (relu, max)
  kBitwise,  // ATen's bytes, the sign of zero included; NaN payloads are free
};

// Which part of its operands an element of the result needs. Of a backward operator: of the
// forward's input, whose sizes the gradient has.
enum class OpNeeds {
  kEverything,
  kItsPlace,  // the elements at its own place, or those that are spread to it
  kAxes,      // all along the dimensions that argument `axes` names, a number or a list; all
              // elements where there is no such argument. Of other dimensions its own place
  kTrailing,  // all along the last dimensions: as many as the list at argument `axes` has
  kGroup,     // of one sample, all places of the channels that argument `axes` divides into so many
              // groups
  kChannel,   // all samples and places of its channel, which is dimension 1
  kWindow,    // a window of the last dimensions
  kRowAndColumn,  // one row of the left operand, one column of the right
};

// Where the dimensions of the results lie in the operands: which of them may be cut down to some of
// their places without another answer at these (verify/axes.h). One rule a row.
enum class OpDims {
  kUnknown,     // nothing is known
  kAligned,     // operands and results are broadcast together, from the last dimension on
  kReshaped,    // the same elements in the same order, in other dimensions
  kPermuted,    // by the list at argument 1
  kTransposed,  // arguments 1 and 2 change places; without them, the two dimensions there are
  kExpanded,    // to the sizes at argument 1
  kFilled,      // of the sizes at argument 0
  kRepeated,    // as often as the list at argument 1 says
  kPadded,      // by the list at argument 1: two numbers a dimension, the last dimension first
  kJoined,      // a list of tensors, one behind the other along argument 1
  kStacked,     // the same along a new dimension
  kAlongAxis,   // dimensions of argument `axes` have places of their own; the others stay
  kLastTwo,     // the last two dimensions have
  kLookedUp,    // rows of the first operand, by the indices in the second
  kIndexed,     // by a list of tensors of indices
  kGathered,    // by a tensor of indices along argument 1
  kReduced,     // taken together along argument `axes`, which stays or not; see OpNeeds::kAxes
  kTrailing,    // taken together along the last dimensions, as many as the list at `axes` has
  kGroups,      // of [N, C, ...], by argument `axes` groups of channels
  kChannels,    // of [N, C, ...], along all but C; or along none, see OpNeeds
  kWindows,     // `windows` last dimensions have places of their own
  kLabels,      // of [N, C, ...] and labels [N, ...]
  kCounted,     // the gradient of kLookedUp
  kProduct,     // [b, M, K] at argument `left`, [b, K, N] behind it
  kConvolution,
  kConvolutionBackward,
  kAttention,
};

// How an operator's sums are written out by plain ones, so that they can be taken in other orders.
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
  kProduct,   // two for each element of the result and each element of a row of argument `left`
  kConvolution,
  kAttention,
};

// What is run in float64 where ATen has no such kernel of the operator: a few plain operators.
enum class Float64 {
  kItself,
  kProduct,        // mm(a, b)
  kScaledProduct,  // mm(a * scale of a, b * scale of b) + bias, by the scale of the result
  kScaledRows,     // mm(a, b transposed) * scales
};

// What an operand means: what its values may be, and what may be asked of the result.
enum class OperandRole {
  kValue,           // any number
  kIndex,           // an integer in [0, limit)
  kTarget,          // a label: an integer in [0, limit), or ignore_index
  kPositive,        // a variance, a reciprocal standard deviation, a total weight
  kProbability,     // in (0, 1)
  kLogProbability,  // below 0
  kTanh,            // in (-1, 1)
  kWeight,          // a weight or a mean of an operator that computes with it in an order of its
                    // own: one order makes a NaN of infinities where another makes an infinity,
                    // and rounds products of denormals where another rounds their sum
  kQuery,           // of attention: NaN, but no infinities, as what a row of scores of -infinity
                    // alone comes to depends on the kernel that PyTorch chooses
  kKey,             // its keys, where no query is kept from any: NaN at single places
  kSeen,            // its values, where no query is kept from any: NaN at single places, but not
                    // in the sets where keys have them, as a key's NaN hides a value's
  kFinite,          // no NaN, no infinities. Keys and values where some are hidden: whether a
                    // hidden NaN comes through is not settled. Queries, keys and values of fewer
                    // than 16 keys on a CPU, where ATen's kernel may lose a NaN
  kMask,            // what is added to its scores: -infinity hides single keys, all before or
                    // behind one, or all of a row, which then comes to zeros. Or booleans that
                    // such numbers are made of, whichever of them hides
};

// Where the limit of an index or label comes from.
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

// What a backward operator reads that the forward made of the same input, which must fit it.
enum class Saved {
  kNothing,
  kMoments,           // means and reciprocal standard deviations, at arguments of such roles
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
  std::array<OperandFacts, 4> operands = {};  // those with roles; the rest are any numbers
  // Regions are made around it although no generator of rows lowers it: agents write them, and
  // generators of their own.
  bool heavy = false;
  bool backward = false;
  // Pointwise: harmless with numbers as far out as the largest of the dtype.
  bool tame = false;
  // Pointwise: products and quotients, which overflow in one order and not in another.
  bool multiplies = false;
  // Pointwise: of any numbers one answer is right, NaN and infinities too.
  bool settled = false;
  bool of_positive = false;  // pointwise: NaN for all negative numbers
  bool keeps_role = false;   // the first operand's elements come out unchanged, with their role
  bool makes_mask = false;   // a mask of numbers of one of booleans, or one mask of others
  bool picks = false;        // reads no more of its first operand than it gives out
  bool is_truth = false;     // any, all
  int extreme = 0;  // 1: what it takes together it takes by a maximum (softmax does); -1: a minimum
  int place = -1;   // the output that names the place of one element along `axes`
  int free_places = -1;  // the output of places along `axes`, those of equals in any order
  int weights = -1;  // the output that is a sum of weights: 0 where argument 3, the reduction, is
  int mean = -1;     // the output that is a mean, found beside a variance
  int causal = -1;   // attention: the argument is_causal
  int norm_weight = -1;  // norms: the argument that is the weight
  int epsilon = -1;      // norms: the argument that is added to a variance that is given
  Saved saved = Saved::kNothing;
  Float64 float64 = Float64::kItself;
  std::string_view region_op = {};  // see RegionOpName
};

// Of "aten::sum", "aten::sum.dim_IntList" or "sum"; of an operator without a row, a default
// OpFacts. The result lives forever. Thread-safe.
const OpFacts& FactsOf(std::string_view op);

// The heavy operators, sorted: "aten::mm".
const std::vector<std::string>& HeavyOps();

// Where PyTorch chooses among several kernels for one call, that call:
// "aten::scaled_dot_product_attention" for each of attention's. Others: `op` itself. Part of `op`,
// or lives forever.
std::string_view RegionOpName(std::string_view op);

// The call that gives a tensor the sizes in its second argument, for kReshaped and kExpanded: what
// views of these kinds come to.
std::string_view CallToSizes(OpDims dims);

// The call that gives a copy of its one operand.
std::string_view CallToCopy();

// What PyTorch calls in place of an overload that is made of others: "aten::softmax.int" ->
// {"aten::_softmax"}. Empty where none is known.
const std::vector<std::string>& PartsOf(std::string_view overload);

}  // namespace cudaforge
