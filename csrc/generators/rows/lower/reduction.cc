// Reductions, softmax and scans.
#include <limits>

#include "generators/rows/lower/moments.h"
#include "generators/rows/lower/node.h"

namespace cudaforge::rows {
namespace {

// Result `out`: `reduced` (with kept dimensions) in keepdim's shape.
void Reduced(NodeReader& r, size_t out, int reduced, const std::vector<int>& dims, bool keepdim,
             bool exact = false) {
  r.Result(out, keepdim ? reduced : r.g().Squeeze(reduced, dims), exact);
}

// The dimensions of a reduction: `full` overloads have no dim argument.
std::vector<int> ReducedDims(NodeReader& r, const Tensor& self, bool full) {
  const size_t rank = r.g().sizes(self.node).size();
  if (!full) return r.Dims(1, "dim", rank);
  std::vector<int> dims(rank);
  for (size_t d = 0; d < rank; ++d) dims[d] = static_cast<int>(d);
  return dims;
}

// Integers and booleans accumulate in 64 bits.
Type AccumulateType(Type type) { return IsFloatType(type) ? type : Type::kI64; }

template <ReduceOp op, bool full>
void Accumulate(NodeReader& r) {
  const Tensor self = r.TensorArg(0, "self");
  const int x = r.As(self, AccumulateType(r.type()));
  const std::vector<int> dims = ReducedDims(r, self, full);
  Reduced(r, 0, r.g().Reduce(op, x, dims), dims, !full && r.Flag(2, "keepdim", false));
}

template <bool full>
void Mean(NodeReader& r) {
  if (!IsFloatType(r.type())) return r.Fail("the result is not floating-point");
  const Tensor self = r.TensorArg(0, "self");
  const int x = r.As(self, r.type());
  const std::vector<int> dims = ReducedDims(r, self, full);
  if (!r.ok()) return;
  Reduced(r, 0, MeanOver(r.g(), x, dims), dims, !full && r.Flag(2, "keepdim", false));
}

// amax, amin and the first result of max and min.
int Extreme(NodeReader& r, const Tensor& self, ReduceOp op, const std::vector<int>& dims) {
  if (self.dtype == DType::kBool) op = op == ReduceOp::kMax ? ReduceOp::kAny : ReduceOp::kAll;
  return r.g().Reduce(op, self.node, dims);
}

template <ReduceOp op, bool full>
void Extremum(NodeReader& r) {
  const Tensor self = r.TensorArg(0, "self");
  const std::vector<int> dims = ReducedDims(r, self, full);
  Reduced(r, 0, Extreme(r, self, op, dims), dims, !full && r.Flag(2, "keepdim", false), self.exact);
}

int IndexOperand(NodeReader& r, const Tensor& self) {
  const int x = r.Exact(self);
  return self.dtype == DType::kBool ? r.g().Cast(x, Type::kI32) : x;
}

// max.dim and min.dim: values and indices.
template <ReduceOp op, ReduceOp arg>
void ExtremumWithIndex(NodeReader& r) {
  const Tensor self = r.TensorArg(0, "self");
  const std::vector<int> dims = {r.Dim(1, "dim", r.g().sizes(self.node).size())};
  const bool keepdim = r.Flag(2, "keepdim", false);
  if (!r.ok()) return;
  Reduced(r, 0, Extreme(r, self, op, dims), dims, keepdim, self.exact);
  Reduced(r, 1, r.g().Reduce(arg, IndexOperand(r, self), dims), dims, keepdim);
}

template <ReduceOp op>
void ArgExtremum(NodeReader& r) {
  const Tensor self = r.TensorArg(0, "self");
  const std::vector<int> dims = r.Dims(1, "dim", r.g().sizes(self.node).size());
  const int index = r.g().Reduce(op, IndexOperand(r, self), dims);
  Reduced(r, 0, index, dims, r.Flag(2, "keepdim", false));
}

template <ReduceOp op, bool full>
void Quantifier(NodeReader& r) {
  const Tensor self = r.TensorArg(0, "self");
  const std::vector<int> dims = ReducedDims(r, self, full);
  const int any = r.g().Reduce(op, r.As(self, Type::kBool), dims);
  Reduced(r, 0, any, dims, !full && r.Flag(2, "keepdim", false));
}

enum class Spread { kVar, kStd, kVarMean };

template <Spread kind, bool by_correction>
void Variance(NodeReader& r) {
  if (!IsFloatType(r.type())) return r.Fail("the result is not floating-point");
  const Tensor self = r.TensorArg(0, "self");
  // On a CPU ATen computes the standard deviation of denormals, whose squares underflow float32.
  const bool wide = kind == Spread::kStd && r.device() == DeviceType::kCpu;
  const int x = r.As(self, wide ? Type::kF64 : r.type());
  const std::vector<int> dims = ReducedDims(r, self, false);
  double correction = 1;
  bool keepdim = false;
  if (by_correction) {
    correction = r.Number(2, "correction", 1);
    keepdim = r.Flag(3, "keepdim", false);
  } else {
    correction = r.Flag(2, "unbiased", true) ? 1 : 0;
    keepdim = r.Flag(3, "keepdim", false);
  }
  if (!r.ok()) return;
  const Moments moments = MomentsOver(r.g(), x, dims, correction);
  const int spread =
      kind == Spread::kStd ? r.g().Unary(ScalarOp::kSqrt, moments.variance) : moments.variance;
  Reduced(r, 0, spread, dims, keepdim);
  if (kind == Spread::kVarMean) Reduced(r, 1, moments.mean, dims, keepdim);
}

void LogSumExp(NodeReader& r) {
  Graph& g = r.g();
  if (!IsFloatType(r.type())) return r.Fail("the result is not floating-point");
  const Tensor self = r.TensorArg(0, "self");
  const int x = r.As(self, r.type());
  const std::vector<int> dims = ReducedDims(r, self, false);
  const int top = g.Reduce(ReduceOp::kMax, x, dims);
  const int infinite = g.Pointwise(
      ScalarOp::kEq,
      {g.Unary(ScalarOp::kAbs, top), g.Like(x, std::numeric_limits<double>::infinity())});
  const int shift = g.Where(infinite, g.Like(x, 0), top);
  const int sum = g.Reduce(ReduceOp::kSum, g.Unary(ScalarOp::kExp, g.Sub(x, shift)), dims);
  Reduced(r, 0, g.Add(g.Unary(ScalarOp::kLog, sum), shift), dims, r.Flag(2, "keepdim", false));
}

// The dimension of softmax and scans; a 0-d tensor is one row of one element.
std::vector<int> OneDim(NodeReader& r, size_t position, int node) {
  if (r.g().sizes(node).empty()) return {};
  return {r.Dim(position, "dim", r.g().sizes(node).size())};
}

template <bool logarithm>
void Softmax(NodeReader& r) {
  Graph& g = r.g();
  if (!IsFloatType(r.type())) return r.Fail("the result is not floating-point");
  const int x = r.As(r.TensorArg(0, "self"), r.type());
  const std::vector<int> dims = OneDim(r, 1, x);
  const int shifted = g.Sub(x, g.Reduce(ReduceOp::kMax, x, dims));
  const int exps = g.Unary(ScalarOp::kExp, shifted);
  const int sum = g.Reduce(ReduceOp::kSum, exps, dims);
  r.Result(0, logarithm ? g.Sub(shifted, g.Unary(ScalarOp::kLog, sum)) : g.Div(exps, sum));
}

template <bool logarithm>
void SoftmaxBackward(NodeReader& r) {
  Graph& g = r.g();
  if (!IsFloatType(r.type())) return r.Fail("the result is not floating-point");
  const int grad = r.As(r.TensorArg(0, "grad_output"), r.type());
  const int output = r.As(r.TensorArg(1, "output"), r.type());
  const std::vector<int> dims = OneDim(r, 2, output);
  if (logarithm) {
    const int sum = g.Reduce(ReduceOp::kSum, grad, dims);
    return r.Result(0, g.Sub(grad, g.Mul(g.Unary(ScalarOp::kExp, output), sum)));
  }
  const int sum = g.Reduce(ReduceOp::kSum, g.Mul(grad, output), dims);
  r.Result(0, g.Mul(output, g.Sub(grad, sum)));
}

template <ScanOp op>
void Scan(NodeReader& r) {
  const int x = r.As(r.TensorArg(0, "self"), AccumulateType(r.type()));
  const std::vector<int> dims = OneDim(r, 1, x);
  if (r.ok()) r.Result(0, dims.empty() ? x : r.g().Scan(op, x, dims[0]));
}

}  // namespace

const LowerTable& ReductionTable() {
  using R = ReduceOp;
  static const LowerTable kTable = {
      {"aten::sum", Accumulate<R::kSum, true>},
      {"aten::sum.dim_IntList", Accumulate<R::kSum, false>},
      {"aten::prod", Accumulate<R::kProd, true>},
      {"aten::prod.dim_int", Accumulate<R::kProd, false>},
      {"aten::mean", Mean<true>},
      {"aten::mean.dim", Mean<false>},
      {"aten::amax", Extremum<R::kMax, false>},
      {"aten::amin", Extremum<R::kMin, false>},
      {"aten::max", Extremum<R::kMax, true>},
      {"aten::min", Extremum<R::kMin, true>},
      {"aten::max.dim", ExtremumWithIndex<R::kMax, R::kArgMax>},
      {"aten::min.dim", ExtremumWithIndex<R::kMin, R::kArgMin>},
      {"aten::argmax", ArgExtremum<R::kArgMax>},
      {"aten::argmin", ArgExtremum<R::kArgMin>},
      {"aten::any", Quantifier<R::kAny, true>},
      {"aten::any.dim", Quantifier<R::kAny, false>},
      {"aten::any.dims", Quantifier<R::kAny, false>},
      {"aten::all", Quantifier<R::kAll, true>},
      {"aten::all.dim", Quantifier<R::kAll, false>},
      {"aten::all.dims", Quantifier<R::kAll, false>},
      {"aten::var.correction", Variance<Spread::kVar, true>},
      {"aten::var.dim", Variance<Spread::kVar, false>},
      {"aten::std.correction", Variance<Spread::kStd, true>},
      {"aten::std.dim", Variance<Spread::kStd, false>},
      {"aten::var_mean.correction", Variance<Spread::kVarMean, true>},
      {"aten::logsumexp", LogSumExp},
      {"aten::_softmax", Softmax<false>},
      {"aten::_log_softmax", Softmax<true>},
      {"aten::_softmax_backward_data", SoftmaxBackward<false>},
      {"aten::_log_softmax_backward_data", SoftmaxBackward<true>},
      {"aten::cumsum", Scan<ScanOp::kSum>},
      {"aten::cumprod", Scan<ScanOp::kProd>},
  };
  return kTable;
}

}  // namespace cudaforge::rows
