#include "signature/op_facts.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <unordered_map>

#include "signature/op_signature.h"

namespace cudaforge {
namespace {

using Kind = OpKind;
using Family = OpFamily;
using Needs = OpNeeds;
using Work = OpWork;
using Dims = OpDims;
using Sums = OpSums;
using Role = OperandRole;
using Limit = IndexLimit;
using Operands = std::array<OperandFacts, 4>;

struct Row {
  std::string_view name;  // without "aten::" and overload
  OpFacts facts;
};

constexpr OpFacts Pointwise(Operands operands = {}, Match match = Match::kTolerance) {
  return {.kind = Kind::kPointwise,
          .match = match,
          .needs = Needs::kItsPlace,
          .dims = Dims::kAligned,
          .operands = operands};
}

constexpr OpFacts Tame(Match match = Match::kTolerance) {
  OpFacts facts = Pointwise({}, match);
  facts.tame = true;
  return facts;
}

// Exact in any precision: selects an operand, changes its sign, or gives 0, 1 or -1.
constexpr OpFacts Exact(Match match = Match::kEqual) { return Tame(match); }

// For operators on booleans that may be a mask.
constexpr OpFacts OfMasks(OpFacts facts) {
  facts.makes_mask = true;
  return facts;
}

constexpr OpFacts Moves(Operands operands = {}, Work work = Work::kElements) {
  return {.kind = Kind::kMoves, .match = Match::kBitwise, .work = work, .operands = operands};
}

constexpr OpFacts WithDims(OpFacts facts, OpDims dims, int axes = -1) {
  facts.dims = dims;
  if (axes >= 0) facts.axes = axes;
  return facts;
}

constexpr OpFacts WithSums(OpFacts facts, OpSums sums) {
  facts.sums = sums;
  return facts;
}

// Copies all of its first operand.
constexpr OpFacts Keeps(Work work) {
  OpFacts facts = Moves({}, work);
  facts.keeps_role = true;
  return facts;
}

// Selects an operand's element at each place.
constexpr OpFacts Chooses() {
  OpFacts facts = Moves();
  facts.needs = Needs::kItsPlace;
  facts.dims = Dims::kAligned;
  facts.tame = true;
  return facts;
}

constexpr OpFacts KeepsInPlace() {
  OpFacts facts = Chooses();
  facts.keeps_role = true;
  return facts;
}

// Copies part of its first operand.
constexpr OpFacts Picks(Operands operands = {}) {
  OpFacts facts = Moves(operands);
  facts.picks = true;
  return facts;
}

constexpr OpFacts ViewOfPart() {
  OpFacts facts = Keeps(Work::kNone);
  facts.picks = true;
  return facts;
}

constexpr OpFacts Reduces(Family family, int axes = 1, Operands operands = {}) {
  return {.kind = family == Family::kScan ? Kind::kScans : Kind::kReduces,
          .family = family,
          .needs = Needs::kAxes,
          .axes = axes,
          .dims = Dims::kReduced,
          .operands = operands};
}

constexpr OpFacts Extreme(Family family, int sign, Match match = Match::kTolerance,
                          int place = -1) {
  OpFacts facts = Reduces(family);
  facts.extreme = sign;
  facts.match = match;
  facts.place = place;
  return facts;
}

constexpr OpFacts Sorts(int axes) {
  return {.kind = Kind::kReduces, .match = Match::kEqual, .axes = axes, .free_places = 1};
}

constexpr OpFacts Truth() {
  OpFacts facts = Reduces(Family::kReduction);
  facts.is_truth = true;
  return facts;
}

constexpr OpFacts WithMean(OpFacts facts, int mean) {
  facts.mean = mean;
  return facts;
}

constexpr OpFacts Norm(Needs needs, int axes, int weight, Operands operands = {}) {
  return {.kind = Kind::kReduces,
          .family = Family::kNorm,
          .needs = needs,
          .axes = axes,
          .dims = needs == Needs::kTrailing ? Dims::kTrailing
                  : needs == Needs::kGroup  ? Dims::kGroups
                                            : Dims::kChannels,
          .operands = operands,
          .norm_weight = weight};
}

constexpr OpFacts Backward(OpFacts facts, Saved saved = Saved::kNothing) {
  facts.backward = true;
  facts.saved = saved;
  return facts;
}

constexpr OpFacts OfWindows(int windows, Operands operands = {}) {
  return {.kind = Kind::kReduces,
          .family = Family::kPooling,
          .needs = Needs::kWindow,
          .dims = Dims::kWindows,
          .windows = windows,
          .operands = operands};
}

constexpr OpFacts MaximumOfWindows(int windows) {
  OpFacts facts = OfWindows(windows);
  facts.extreme = 1;
  facts.match = Match::kEqual;
  return facts;
}

constexpr OpFacts Loss(Operands operands, int weights = -1) {
  return {.kind = Kind::kReduces,
          .family = Family::kLoss,
          .dims = Dims::kLabels,
          .sums = weights < 0 ? Sums::kNone : Sums::kLoss,
          .operands = operands,
          .weights = weights};
}

constexpr OpFacts Product(int left, bool heavy) {
  return {.kind = Kind::kContracts,
          .family = Family::kMatmul,
          .needs = Needs::kRowAndColumn,
          .dims = Dims::kProduct,
          .sums = Sums::kProduct,
          .work = Work::kProduct,
          .left = left,
          .heavy = heavy};
}

// For operands without a float64 form: quantised ones.
constexpr OpFacts QuantisedProduct(Float64 float64, OpNeeds needs, Operands scales = {}) {
  OpFacts facts = Product(0, false);
  facts.needs = needs;
  if (needs == Needs::kEverything) facts.dims = Dims::kUnknown;
  facts.operands = scales;
  facts.float64 = float64;
  return facts;
}

constexpr OpFacts Attention(int causal, int mask, bool heavy) {
  return {.kind = Kind::kContracts,
          .family = Family::kAttention,
          .needs = Needs::kRowAndColumn,
          .dims = Dims::kAttention,
          .work = Work::kAttention,
          .operands = {{{0, Role::kQuery}, {1, Role::kKey}, {2, Role::kSeen}, {mask, Role::kMask}}},
          .heavy = heavy,
          .causal = causal};
}

// One of PyTorch's attention kernels. Without dropout it equals the general call, which every
// PyTorch has, also in float64.
constexpr OpFacts KernelOfAttention(int causal, int mask) {
  OpFacts facts = Attention(causal, mask, false);
  facts.region_op = "aten::scaled_dot_product_attention";
  return facts;
}

constexpr OpFacts Convolution(bool heavy) {
  return {.kind = Kind::kContracts,
          .family = Family::kConvolution,
          .needs = Needs::kWindow,
          .dims = Dims::kConvolution,
          .sums = Sums::kConvolution,
          .work = Work::kConvolution,
          .heavy = heavy};
}

constexpr OpFacts Multiplies() {
  OpFacts facts = Tame();
  facts.multiplies = true;
  return facts;
}
constexpr OpFacts Settled(bool of_positive = false) {
  OpFacts facts = Pointwise();
  facts.settled = true;
  facts.of_positive = of_positive;
  return facts;
}
constexpr OpFacts BatchNorm(OpNeeds needs, int epsilon) {
  OpFacts facts = Norm(needs, -1, -1, {{{4, Role::kPositive}}});
  facts.epsilon = epsilon;
  return facts;
}
constexpr OpFacts BatchNormBackward() {
  return Backward(Norm(Needs::kChannel, -1, -1, {{{4, Role::kPositive}, {6, Role::kPositive}}}),
                  Saved::kMoments);
}
constexpr OpFacts OfKind(Kind kind) { return {.kind = kind}; }

constexpr Row kRows[] = {
    // Pointwise, exact.
    {"abs", Exact()},
    {"clamp_max", Exact()},
    {"clamp_min", Exact()},
    {"maximum", Exact()},
    {"minimum", Exact()},
    {"neg", Exact(Match::kBitwise)},
    {"relu", Exact()},
    {"sign", Exact()},
    // Pointwise, or makes parts of masks.
    {"_to_copy",
     {.kind = Kind::kPointwise,
      .needs = Needs::kItsPlace,
      .dims = Dims::kAligned,
      .tame = true,
      .keeps_role = true}},
    {"add", Tame()},
    {"bitwise_and", OfMasks(Tame())},
    {"bitwise_not", OfMasks(Tame())},
    {"bitwise_or", OfMasks(Tame())},
    {"bitwise_xor", Tame()},
    {"ceil", Tame()},
    {"clamp", Tame()},
    {"div", Multiplies()},
    {"elu", Tame()},
    {"eq", Tame()},
    {"erf", Tame()},
    {"exp", Tame()},
    {"exp2", Tame()},
    {"expm1", Tame()},
    {"floor", Tame()},
    {"full", WithDims(Tame(), Dims::kFilled)},
    {"full_like", Tame()},
    {"ge", Tame()},
    {"gelu", Tame()},
    {"gt", Tame()},
    {"hardsigmoid", Tame()},
    {"hardswish", Tame()},
    {"hardtanh", Tame()},
    {"isinf", Tame()},
    {"isnan", Tame()},
    {"le", Tame()},
    {"leaky_relu", Tame()},
    {"logical_and", OfMasks(Tame())},
    {"logical_not", OfMasks(Tame())},
    {"logical_or", OfMasks(Tame())},
    {"logical_xor", Tame()},
    {"lt", Tame()},
    {"mul", Multiplies()},
    {"ne", Tame()},
    {"ones_like", Tame()},
    {"reciprocal", Multiplies()},
    {"round", Tame()},
    {"rsub", Tame()},
    {"scalar_tensor", Tame()},
    {"sigmoid", Tame()},
    {"silu", Tame()},
    {"softplus", Tame()},
    {"square", Multiplies()},
    {"sub", Tame()},
    {"tanh", Tame()},
    {"trunc", Tame()},
    {"zeros_like", Tame()},
    // Pointwise; powers, roots, logarithms, remainders, sines and gradients.
    {"atan2", Settled()},
    {"cos", Pointwise()},
    {"fmod", Settled()},
    {"gelu_backward", Pointwise()},
    {"log", Settled(/*of_positive=*/true)},
    {"log1p", Settled()},
    {"log2", Settled(/*of_positive=*/true)},
    {"pow", Pointwise()},
    {"remainder", Settled()},
    {"rsqrt", Settled(/*of_positive=*/true)},
    {"sigmoid_backward", Pointwise({{{1, Role::kProbability}}})},
    {"silu_backward", Pointwise()},
    {"sin", Pointwise()},
    {"sqrt", Settled(/*of_positive=*/true)},
    {"tanh_backward", Pointwise({{{1, Role::kTanh}}})},
    {"threshold_backward", Pointwise({}, Match::kEqual)},
    // Views.
    {"_unsafe_view", WithDims(Keeps(Work::kNone), Dims::kReshaped)},
    {"alias", WithDims(Keeps(Work::kNone), Dims::kAligned)},
    {"as_strided", Moves({}, Work::kNone)},
    {"detach", WithDims(Moves({}, Work::kNone), Dims::kAligned)},
    {"expand", WithDims(Keeps(Work::kNone), Dims::kExpanded)},
    {"permute", WithDims(Keeps(Work::kNone), Dims::kPermuted)},
    {"reshape", WithDims(Keeps(Work::kNone), Dims::kReshaped)},
    {"squeeze", WithDims(Keeps(Work::kNone), Dims::kReshaped)},
    {"t", WithDims(Keeps(Work::kNone), Dims::kTransposed)},
    {"transpose", WithDims(Keeps(Work::kNone), Dims::kTransposed)},
    {"unsqueeze", WithDims(Keeps(Work::kNone), Dims::kReshaped)},
    {"view", WithDims(Keeps(Work::kNone), Dims::kReshaped)},
    {"view_as", Moves({}, Work::kNone)},
    // Copies in place of views.
    {"_reshape_copy", WithDims(Keeps(Work::kElements), Dims::kReshaped)},
    {"expand_copy", WithDims(Keeps(Work::kElements), Dims::kExpanded)},
    {"permute_copy", WithDims(Keeps(Work::kElements), Dims::kPermuted)},
    {"select_copy", WithDims(Picks(), Dims::kAlongAxis, 1)},
    {"slice_copy", WithDims(Picks(), Dims::kAlongAxis, 1)},
    {"squeeze_copy", WithDims(Keeps(Work::kElements), Dims::kReshaped)},
    {"t_copy", WithDims(Keeps(Work::kElements), Dims::kTransposed)},
    {"transpose_copy", WithDims(Keeps(Work::kElements), Dims::kTransposed)},
    {"unsqueeze_copy", WithDims(Keeps(Work::kElements), Dims::kReshaped)},
    {"view_copy", WithDims(Keeps(Work::kElements), Dims::kReshaped)},
    // Copying data.
    {"cat", WithDims(Moves(), Dims::kJoined)},
    {"clone", KeepsInPlace()},
    {"constant_pad_nd", WithDims(Moves(), Dims::kPadded)},
    {"contiguous", WithDims(Keeps(Work::kElements), Dims::kAligned)},
    {"flatten", WithDims(Keeps(Work::kElements), Dims::kReshaped)},
    {"flip", WithDims(Moves(), Dims::kAlongAxis, 1)},
    {"masked_fill", OfMasks(Chooses())},
    {"repeat", WithDims(Moves(), Dims::kRepeated)},
    {"roll", WithDims(Moves(), Dims::kAlongAxis, 2)},
    {"split", WithDims(Moves(), Dims::kAlongAxis, 2)},
    {"stack", WithDims(Moves(), Dims::kStacked)},
    {"tril", WithDims(Moves(), Dims::kLastTwo)},
    {"triu", WithDims(Moves(), Dims::kLastTwo)},
    {"where", OfMasks(Chooses())},
    // Copying a part.
    {"embedding", WithDims(Picks({{{1, Role::kIndex, Limit::kSizeOf, 0, 0}}}), Dims::kLookedUp)},
    {"gather", WithDims(Picks({{{2, Role::kIndex, Limit::kSizeOfDim, 0, 1}}}), Dims::kGathered)},
    {"index", WithDims(Picks(), Dims::kIndexed)},
    {"index_select",
     WithDims(Picks({{{2, Role::kIndex, Limit::kSizeOfDim, 0, 1}}}), Dims::kGathered)},
    {"narrow", WithDims(ViewOfPart(), Dims::kAlongAxis, 1)},
    {"select", WithDims(ViewOfPart(), Dims::kAlongAxis, 1)},
    {"slice", WithDims(ViewOfPart(), Dims::kAlongAxis, 1)},
    // Reductions.
    {"all", Truth()},
    {"amax", Extreme(Family::kReduction, 1, Match::kEqual)},
    {"amin", Extreme(Family::kReduction, -1, Match::kEqual)},
    {"aminmax", {.kind = Kind::kReduces, .family = Family::kReduction, .match = Match::kEqual}},
    {"any", Truth()},
    {"argmax", Extreme(Family::kReduction, 1, Match::kTolerance, 0)},
    {"argmin", Extreme(Family::kReduction, -1, Match::kTolerance, 0)},
    {"max", Extreme(Family::kReduction, 1, Match::kEqual, 1)},
    {"mean", WithSums(Reduces(Family::kReduction), Sums::kMean)},
    {"min", Extreme(Family::kReduction, -1, Match::kEqual, 1)},
    {"prod", Reduces(Family::kReduction)},
    {"sort", Sorts(1)},
    {"std", WithSums(Reduces(Family::kReduction), Sums::kDeviation)},
    {"std_mean", WithSums(WithMean(Reduces(Family::kReduction), 1), Sums::kDeviation)},
    {"sum", WithSums(Reduces(Family::kReduction), Sums::kSum)},
    {"topk", Sorts(2)},
    {"var", WithSums(Reduces(Family::kReduction), Sums::kVariance)},
    {"var_mean", WithSums(WithMean(Reduces(Family::kReduction), 1), Sums::kVariance)},
    // Scans.
    {"cummax", Extreme(Family::kScan, 1, Match::kEqual, 1)},
    {"cummin", Extreme(Family::kScan, -1, Match::kEqual, 1)},
    {"cumprod", Reduces(Family::kScan)},
    {"cumsum", WithSums(Reduces(Family::kScan), Sums::kScan)},
    // Softmax.
    {"_log_softmax", WithSums(Extreme(Family::kSoftmax, 1), Sums::kLogSoftmax)},
    {"_safe_softmax", Extreme(Family::kSoftmax, 1)},
    {"_softmax", WithSums(Extreme(Family::kSoftmax, 1), Sums::kSoftmax)},
    {"logsumexp", WithSums(Extreme(Family::kSoftmax, 1), Sums::kLogSumExp)},
    {"_log_softmax_backward_data",
     WithSums(
         Backward(Reduces(Family::kSoftmax, 2, {{{1, Role::kLogProbability}}}), Saved::kLogSoftmax),
         Sums::kLogSoftmaxBackward)},
    {"_softmax_backward_data",
     WithSums(Backward(Reduces(Family::kSoftmax, 2, {{{1, Role::kProbability}}}), Saved::kSoftmax),
              Sums::kSoftmaxBackward)},
    // Norms.
    {"native_layer_norm", WithSums(WithMean(Norm(Needs::kTrailing, 1, 2), 1), Sums::kMoments)},
    {"native_layer_norm_backward",
     Backward(Norm(Needs::kTrailing, 2, 5,
                   {{{3, Role::kWeight}, {4, Role::kPositive}, {5, Role::kWeight}}}),
              Saved::kMoments)},
    {"native_group_norm", WithMean(Norm(Needs::kGroup, 6, 1, {{{1, Role::kWeight}}}), 1)},
    {"native_group_norm_backward",
     Backward(Norm(Needs::kGroup, 8, 4,
                   {{{2, Role::kWeight}, {3, Role::kPositive}, {4, Role::kWeight}}}),
              Saved::kMoments)},
    {"_fused_rms_norm", WithSums(Norm(Needs::kTrailing, 1, -1), Sums::kRms)},
    {"_fused_rms_norm_backward",
     Backward(Norm(Needs::kTrailing, 2, -1, {{{3, Role::kPositive}}}), Saved::kRms)},
    {"native_batch_norm", WithMean(BatchNorm(Needs::kChannel, 7), 1)},
    {"_native_batch_norm_legit", WithMean(BatchNorm(Needs::kChannel, 7), 1)},
    {"_native_batch_norm_legit_no_training", BatchNorm(Needs::kItsPlace, 6)},
    {"_batch_norm_no_update", BatchNorm(Needs::kChannel, 6)},
    {"cudnn_batch_norm", BatchNorm(Needs::kChannel, 7)},
    {"batch_norm", BatchNorm(Needs::kChannel, 7)},
    {"native_batch_norm_backward", BatchNormBackward()},
    {"batch_norm_backward", BatchNormBackward()},
    {"cudnn_batch_norm_backward", BatchNormBackward()},
    // Pooling.
    {"avg_pool1d", OfWindows(1)},
    {"avg_pool2d", OfWindows(2)},
    {"avg_pool3d", OfWindows(3)},
    {"avg_pool2d_backward", Backward(OfWindows(2))},
    {"avg_pool3d_backward", Backward(OfWindows(3))},
    {"max_pool2d_with_indices", MaximumOfWindows(2)},
    {"max_pool3d_with_indices", MaximumOfWindows(3)},
    {"max_pool2d_with_indices_backward",
     Backward(OfWindows(2, {{{7, Role::kIndex, Limit::kLastTwoSizes, 1}}}),
              Saved::kPlacesOfMaxima2d)},
    {"max_pool3d_with_indices_backward",
     Backward(OfWindows(3, {{{7, Role::kIndex, Limit::kLastThreeSizes, 1}}}),
              Saved::kPlacesOfMaxima3d)},
    // Losses.
    {"nll_loss_forward", Loss({{{1, Role::kTarget, Limit::kSizeOf, 0, -1, 4}}}, 1)},
    {"nll_loss2d_forward", Loss({{{1, Role::kTarget, Limit::kSizeOf, 0, 1, 4}}}, 1)},
    {"nll_loss_backward",
     Backward(Loss({{{2, Role::kTarget, Limit::kSizeOf, 1, -1, 5}, {6, Role::kPositive}}}))},
    {"nll_loss2d_backward",
     Backward(Loss({{{2, Role::kTarget, Limit::kSizeOf, 1, 1, 5}, {6, Role::kPositive}}}))},
    {"embedding_dense_backward",
     {.kind = Kind::kReduces,
      .dims = Dims::kCounted,
      .operands = {{{1, Role::kIndex, Limit::kArgument, 2}}},
      .backward = true}},
    // Contractions.
    {"addmm", Product(1, true)},
    {"baddbmm", Product(1, true)},
    {"bmm", Product(0, true)},
    {"mm", Product(0, true)},
    {"convolution", Convolution(true)},
    {"convolution_backward",
     {.kind = Kind::kContracts,
      .family = Family::kConvolution,
      .dims = Dims::kConvolutionBackward,
      .backward = true}},
    {"scaled_dot_product_attention", Attention(5, 3, true)},
    {"_scaled_dot_product_cudnn_attention", KernelOfAttention(6, 3)},
    {"_scaled_dot_product_efficient_attention", KernelOfAttention(6, 3)},
    {"_scaled_dot_product_flash_attention", KernelOfAttention(4, -1)},
    {"_scaled_dot_product_flash_attention_for_cpu", KernelOfAttention(4, -1)},
    {"_int_mm", QuantisedProduct(Float64::kProduct, Needs::kRowAndColumn)},
    {"_scaled_mm", QuantisedProduct(Float64::kScaledProduct, Needs::kEverything,
                                    {{{2, Role::kPositive}, {3, Role::kPositive}}})},
    {"_weight_int8pack_mm",
     QuantisedProduct(Float64::kScaledRows, Needs::kEverything, {{{2, Role::kPositive}}})},
    // Random numbers.
    {"bernoulli", OfKind(Kind::kDraws)},
    {"binomial", OfKind(Kind::kDraws)},
    {"cauchy", OfKind(Kind::kDraws)},
    {"exponential", OfKind(Kind::kDraws)},
    {"geometric", OfKind(Kind::kDraws)},
    {"log_normal", OfKind(Kind::kDraws)},
    {"multinomial", OfKind(Kind::kDraws)},
    {"native_dropout", OfKind(Kind::kDraws)},
    {"normal", OfKind(Kind::kDraws)},
    {"poisson", OfKind(Kind::kDraws)},
    {"rand", OfKind(Kind::kDraws)},
    {"rand_like", OfKind(Kind::kDraws)},
    {"randint", OfKind(Kind::kDraws)},
    {"randint_like", OfKind(Kind::kDraws)},
    {"randn", OfKind(Kind::kDraws)},
    {"randn_like", OfKind(Kind::kDraws)},
    {"random", OfKind(Kind::kDraws)},
    {"randperm", OfKind(Kind::kDraws)},
    {"rrelu_with_noise", OfKind(Kind::kDraws)},
    {"uniform", OfKind(Kind::kDraws)},
    // Uninitialised memory.
    {"empty", OfKind(Kind::kAllocates)},
    {"empty_like", OfKind(Kind::kAllocates)},
    {"empty_permuted", OfKind(Kind::kAllocates)},
    {"empty_strided", OfKind(Kind::kAllocates)},
    {"new_empty", OfKind(Kind::kAllocates)},
    {"new_empty_strided", OfKind(Kind::kAllocates)},
};

constexpr bool EachOnce() {
  for (const Row& row : kRows) {
    if (std::ranges::count(kRows, row.name, &Row::name) != 1) return false;
  }
  return true;
}
static_assert(EachOnce(), "an operator has one row");

struct Composed {
  std::string_view overload;
  std::vector<std::string> parts;
};

const std::vector<Composed>& AllComposed() {
  static const auto* const all = new std::vector<Composed>{
      {"aten::avg_pool1d", {"aten::avg_pool2d"}},
      {"aten::conv1d", {"aten::convolution"}},
      {"aten::conv2d", {"aten::convolution"}},
      {"aten::conv3d", {"aten::convolution"}},
      {"aten::cross_entropy_loss", {"aten::_log_softmax", "aten::nll_loss_forward"}},
      {"aten::group_norm", {"aten::native_group_norm"}},
      {"aten::layer_norm", {"aten::native_layer_norm"}},
      {"aten::linear", {"aten::addmm", "aten::mm"}},
      {"aten::log_softmax.int", {"aten::_log_softmax"}},
      {"aten::matmul", {"aten::bmm", "aten::mm"}},
      {"aten::max_pool2d", {"aten::max_pool2d_with_indices"}},
      {"aten::mean", {"aten::mean.dim"}},
      {"aten::rms_norm", {"aten::_fused_rms_norm"}},
      {"aten::scaled_dot_product_attention",
       {"aten::_scaled_dot_product_cudnn_attention",
        "aten::_scaled_dot_product_efficient_attention",
        "aten::_scaled_dot_product_flash_attention_for_cpu"}},
      {"aten::softmax.int", {"aten::_softmax"}},
      {"aten::std", {"aten::std.correction"}},
      {"aten::std.dim", {"aten::std.correction"}},
      {"aten::sum", {"aten::sum.dim_IntList"}},
      {"aten::var", {"aten::var.correction"}},
      {"aten::var.dim", {"aten::var.correction"}},
  };
  return *all;
}

}  // namespace

const OpFacts& FactsOf(std::string_view op) {
  static const auto* const by_name = [] {
    auto* const all = new std::unordered_map<std::string_view, const OpFacts*>;
    for (const Row& row : kRows) all->emplace(row.name, &row.facts);
    return all;
  }();
  static constexpr OpFacts kNone;
  const bool elsewhere = !op.starts_with("aten::") && op.find("::") != std::string_view::npos;
  const auto found = elsewhere ? by_name->end() : by_name->find(OpShortName(op));
  return found == by_name->end() ? kNone : *found->second;
}

const std::vector<std::string>& HeavyOps() {
  static const auto* const names = [] {
    auto* const all = new std::vector<std::string>;
    for (const Row& row : kRows) {
      if (row.facts.heavy) all->push_back("aten::" + std::string(row.name));
    }
    std::sort(all->begin(), all->end());
    return all;
  }();
  return *names;
}

std::string_view RegionOpName(std::string_view op) {
  const std::string_view name = FactsOf(op).region_op;
  return name.empty() || op.find('.') != std::string_view::npos ? op : name;
}

std::string_view CallToSizes(OpDims dims) {
  return dims == OpDims::kReshaped ? "aten::_reshape_copy" : "aten::expand_copy";
}

std::string_view CallToCopy() { return "aten::clone"; }

const std::vector<std::string>& PartsOf(std::string_view overload) {
  static const auto* const none = new std::vector<std::string>;
  const auto one = std::ranges::find(AllComposed(), overload, &Composed::overload);
  return one == AllComposed().end() ? *none : one->parts;
}

}  // namespace cudaforge
