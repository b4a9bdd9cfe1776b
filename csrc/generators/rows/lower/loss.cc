// Negative log likelihood, forward and backward. Selects the target's element by comparing indices
// along the row, so that the loss can be fused with the softmax, which reads the row.
#include <limits>

#include "generators/rows/lower/node.h"

namespace cudaforge::rows {
namespace {

enum Reduction { kNone = 0, kMean = 1, kSum = 2 };

struct Target {
  int hit;      // [N, C]: this class is the target, and the target is not ignored
  int valid;    // [N, 1]
  int unknown;  // [N, 1]: invalid class, an error in eager mode; gives NaN here
};

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Checks x: [N, C] and target: [N].
bool ReadTarget(NodeReader& r, int x, size_t position, size_t ignore_position, Target& result) {
  Graph& g = r.g();
  const Tensor target = r.TensorArg(position, "target");
  const int64_t ignore = r.Int(ignore_position, "ignore_index", -100);
  if (!r.ok()) return false;
  if (g.sizes(x).size() != 2 || g.sizes(target.node).size() != 1 ||
      g.sizes(target.node)[0] != g.sizes(x)[0] || target.dtype != DType::kInt64) {
    r.Fail("only [N, C] inputs with [N] int64 targets have a lowering");
    return false;
  }
  const int label = g.Unsqueeze(target.node, 1);
  result.valid = g.Pointwise(ScalarOp::kNe, {label, g.Integer(ignore)});
  const int same = g.Pointwise(ScalarOp::kEq, {label, g.Iota(2, 1, g.sizes(x)[1])});
  result.hit = g.Pointwise(ScalarOp::kAnd, {same, result.valid});
  const int outside =
      g.Pointwise(ScalarOp::kOr, {g.Pointwise(ScalarOp::kLt, {label, g.Integer(0)}),
                                  g.Pointwise(ScalarOp::kGe, {label, g.Integer(g.sizes(x)[1])})});
  result.unknown = g.Pointwise(ScalarOp::kAnd, {outside, result.valid});
  return true;
}

void NllLossForward(NodeReader& r) {
  Graph& g = r.g();
  const Type type = r.type();
  if (!IsFloatType(type)) return r.Fail("the result is not floating-point");
  const int x = r.As(r.TensorArg(0, "self"), type);
  Target target;
  if (!ReadTarget(r, x, 1, 4, target)) return;
  const Tensor weights = r.OptionalTensor(2, "weight");
  const int64_t reduction = r.Int(3, "reduction", kMean);
  const int zero = g.Like(x, 0);
  const int found = g.Reduce(ReduceOp::kSum, g.Where(target.hit, x, zero), {1});
  const int picked = g.Where(target.unknown, g.Like(x, kNan), found);
  int weight;  // [N, 1]
  if (weights.defined()) {
    weight = g.Reduce(ReduceOp::kSum, g.Where(target.hit, r.As(weights, type), zero), {1});
  } else {
    weight = g.Where(target.valid, g.Like(x, 1), zero);
  }
  const int negative = g.Unary(ScalarOp::kNeg, picked);
  const int losses = weights.defined() ? g.Mul(negative, weight) : negative;
  if (reduction == kNone) {
    r.Result(0, g.Squeeze(g.Where(target.valid, losses, zero), {1}));
    return r.Result(1, zero);
  }
  const int loss = g.Squeeze(g.Reduce(ReduceOp::kSum, losses, {0, 1}), {0, 1});
  const int total = g.Squeeze(g.Reduce(ReduceOp::kSum, weight, {0, 1}), {0, 1});
  r.Result(0, reduction == kMean ? g.Div(loss, total) : loss);
  r.Result(1, total);
}

void NllLossBackward(NodeReader& r) {
  Graph& g = r.g();
  const Type type = r.type();
  if (!IsFloatType(type)) return r.Fail("the result is not floating-point");
  int grad = r.As(r.TensorArg(0, "grad_output"), type);
  const int x = r.As(r.TensorArg(1, "self"), type);
  Target target;
  if (!ReadTarget(r, x, 2, 5, target)) return;
  const Tensor weights = r.OptionalTensor(3, "weight");
  const int64_t reduction = r.Int(4, "reduction", kMean);
  if (reduction == kNone) {
    grad = g.Unsqueeze(grad, 1);
  } else if (reduction == kMean) {
    grad = g.Div(grad, r.As(r.TensorArg(6, "total_weight"), type));
  }
  if (weights.defined()) grad = g.Mul(grad, r.As(weights, type));
  const int rest = g.Where(target.unknown, g.Like(grad, kNan), g.Like(grad, 0));
  r.Result(0, g.Where(target.hit, g.Unary(ScalarOp::kNeg, grad), rest));
}

}  // namespace

const LowerTable& LossTable() {
  static const LowerTable kTable = {
      {"aten::nll_loss_forward", NllLossForward},
      {"aten::nll_loss_backward", NllLossBackward},
  };
  return kTable;
}

}  // namespace cudaforge::rows
