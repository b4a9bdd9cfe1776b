// Layer, RMS and group normalisation, forward and backward.
#include <algorithm>
#include <limits>

#include "generators/rows/lower/moments.h"
#include "generators/rows/lower/node.h"

namespace cudaforge::rows {
namespace {

std::vector<int> Range(size_t begin, size_t end) {
  std::vector<int> dims;
  for (size_t d = begin; d < end; ++d) dims.push_back(static_cast<int>(d));
  return dims;
}

// The trailing dimensions of `x` given by normalized_shape. Reports an error if they do not match.
std::vector<int> NormalizedDims(NodeReader& r, size_t position, int x) {
  const std::vector<int64_t> shape = r.Ints(position, "normalized_shape");
  const std::vector<int64_t>& sizes = r.g().sizes(x);
  if (shape.empty() || shape.size() > sizes.size() ||
      !std::equal(shape.rbegin(), shape.rend(), sizes.rbegin())) {
    r.Fail("normalized_shape does not match the input");
    return {};
  }
  return Range(sizes.size() - shape.size(), sizes.size());
}

// A tensor argument in the norm's computation type, or -1.
int Optional(NodeReader& r, size_t position, const char* name, Type type) {
  const Tensor tensor = r.OptionalTensor(position, name);
  return tensor.defined() ? r.As(tensor, type) : -1;
}

struct Norm {
  int mean, rstd, normal;
};

Norm Normalize(Graph& g, int x, const std::vector<int>& dims, double eps) {
  const Moments moments = MomentsOver(g, x, dims, 0);
  const int rstd = g.Unary(ScalarOp::kRsqrt, g.Add(moments.variance, g.Like(x, eps)));
  return {moments.mean, rstd, g.Mul(moments.distance, rstd)};
}

int Affine(Graph& g, int normal, int weight, int bias) {
  int y = normal;
  if (weight >= 0) y = g.Mul(y, weight);
  if (bias >= 0) y = g.Add(y, bias);
  return y;
}

void LayerNorm(NodeReader& r) {
  Graph& g = r.g();
  const int x = r.As(r.TensorArg(0, "input"), r.type());
  const std::vector<int> dims = NormalizedDims(r, 1, x);
  const int weight = Optional(r, 2, "weight", r.type()), bias = Optional(r, 3, "bias", r.type());
  const double eps = r.Number(4, "eps", 1e-5);
  if (!r.ok()) return;
  const Norm norm = Normalize(g, x, dims, eps);
  r.Result(0, Affine(g, norm.normal, weight, bias));
  r.Result(1, norm.mean);
  r.Result(2, norm.rstd);
}

void RmsNorm(NodeReader& r) {
  Graph& g = r.g();
  const int x = r.As(r.TensorArg(0, "input"), r.type());
  const std::vector<int> dims = NormalizedDims(r, 1, x);
  const int weight = Optional(r, 2, "weight", r.type());
  // Without eps, ATen takes the epsilon of its computation type.
  const double eps = r.Number(3, "eps",
                              r.type() == Type::kF64 ? std::numeric_limits<double>::epsilon()
                                                     : std::numeric_limits<float>::epsilon());
  if (!r.ok()) return;
  const int rstd = g.Unary(ScalarOp::kRsqrt, g.Add(MeanOver(g, g.Mul(x, x), dims), g.Like(x, eps)));
  r.Result(0, Affine(g, g.Mul(x, rstd), weight, -1));
  r.Result(1, rstd);
}

// s - mean(s) - normal * mean(s * normal) with s = grad * rstd * weight; RMS norms have no mean(s).
// Multiplies by the deviation first: grad * weight of denormals would lose bits.
int NormGradient(Graph& g, int grad, int weight, int normal, int rstd, const std::vector<int>& dims,
                 bool centred) {
  int scaled = g.Mul(grad, rstd);
  if (weight >= 0) scaled = g.Mul(scaled, weight);
  const int along = MeanOver(g, g.Mul(scaled, normal), dims);
  const int inside = centred ? g.Sub(scaled, MeanOver(g, scaled, dims)) : scaled;
  return g.Sub(inside, g.Mul(normal, along));
}

// ATen's form for layer and group norm on a CPU: s + slope * x - (slope * mean + mean(s)), where
// slope is (mean(s) * mean - mean(s * x)) * rstd^2. For infinite gradients it gives NaN where the
// other may be infinite.
int CpuNormGradient(Graph& g, int grad, int weight, int x, int mean, int rstd,
                    const std::vector<int>& dims) {
  int scaled = g.Mul(grad, rstd);
  if (weight >= 0) scaled = g.Mul(scaled, weight);
  const int over = MeanOver(g, scaled, dims), along = MeanOver(g, g.Mul(scaled, x), dims);
  const int slope = g.Mul(g.Mul(g.Sub(g.Mul(over, mean), along), rstd), rstd);
  return g.Sub(g.Add(scaled, g.Mul(slope, x)), g.Add(g.Mul(slope, mean), over));
}

// For layer and group norm.
int CentredNormGradient(NodeReader& r, int grad, int weight, int x, int mean, int rstd, int normal,
                        const std::vector<int>& dims) {
  return r.device() == DeviceType::kCpu
             ? CpuNormGradient(r.g(), grad, weight, x, mean, rstd, dims)
             : NormGradient(r.g(), grad, weight, normal, rstd, dims, true);
}

bool Wanted(NodeReader& r, size_t position, size_t which) {
  const Json& mask = r.Arg(position, "output_mask");
  if (!mask.is_array() || which >= mask.size() || !mask[which].is_boolean()) {
    r.Fail("output_mask is not a list of booleans");
    return false;
  }
  return mask[which].get<bool>();
}

// Sums over the leading dimensions, for a gradient of weight or bias.
void ResultOverRows(NodeReader& r, size_t out, int x, size_t leading) {
  const std::vector<int> rows = Range(0, leading);
  r.Result(out, r.g().Squeeze(r.g().Reduce(ReduceOp::kSum, x, rows), rows));
}

void LayerNormBackward(NodeReader& r) {
  Graph& g = r.g();
  const Tensor input = r.TensorArg(1, "input");
  const Type type = ComputeType(input.dtype);
  const int grad = r.As(r.TensorArg(0, "grad_out"), type), x = r.As(input, type);
  const std::vector<int> dims = NormalizedDims(r, 2, x);
  const int mean = r.As(r.TensorArg(3, "mean"), type), rstd = r.As(r.TensorArg(4, "rstd"), type);
  const int weight = Optional(r, 5, "weight", type);
  if (!r.ok()) return;
  const int normal = g.Mul(g.Sub(x, mean), rstd);
  const size_t leading = g.sizes(x).size() - dims.size();
  if (Wanted(r, 7, 0)) {
    r.Result(0, CentredNormGradient(r, grad, weight, x, mean, rstd, normal, dims));
  }
  if (Wanted(r, 7, 1)) ResultOverRows(r, 1, g.Mul(grad, normal), leading);
  if (Wanted(r, 7, 2)) ResultOverRows(r, 2, grad, leading);
}

void RmsNormBackward(NodeReader& r) {
  Graph& g = r.g();
  const Tensor input = r.TensorArg(1, "input");
  const Type type = ComputeType(input.dtype);
  const int grad = r.As(r.TensorArg(0, "grad_out"), type), x = r.As(input, type);
  const std::vector<int> dims = NormalizedDims(r, 2, x);
  const int rstd = r.As(r.TensorArg(3, "rstd"), type);
  const int weight = Optional(r, 4, "weight", type);
  if (!r.ok()) return;
  const int normal = g.Mul(x, rstd);
  const size_t leading = g.sizes(x).size() - dims.size();
  if (Wanted(r, 5, 0)) r.Result(0, NormGradient(g, grad, weight, normal, rstd, dims, false));
  if (Wanted(r, 5, 1)) ResultOverRows(r, 1, g.Mul(grad, normal), leading);
}

// [N, C, *] as [N, G, C / G, *], with the reduced dimensions 2 and up.
struct Groups {
  int64_t channels_per_group = 1;
  std::vector<int> dims;
  size_t rank = 0;  // of the split tensor
};

std::optional<Groups> ReadGroups(NodeReader& r, int x, size_t position) {
  const std::vector<int64_t>& sizes = r.g().sizes(x);
  const int64_t groups = r.Int(position, "group", 1);
  if (sizes.size() < 2 || groups < 1 || sizes[1] % groups != 0) {
    r.Fail("the groups do not divide the channels");
    return std::nullopt;
  }
  return Groups{sizes[1] / groups, Range(2, sizes.size() + 1), sizes.size() + 1};
}

// Per-channel values [C] as [G, C / G, 1, ...].
int PerChannel(Graph& g, int x, const Groups& groups) {
  if (x < 0) return x;
  int split = g.Split(x, 0, groups.channels_per_group);
  for (size_t d = 3; d < groups.rank; ++d) split = g.Unsqueeze(split, static_cast<int>(d) - 1);
  return split;
}

// Per-group values [N, G] as [N, G, 1, ...].
int PerGroup(Graph& g, int x, const Groups& groups) {
  for (size_t d = 2; d < groups.rank; ++d) x = g.Unsqueeze(x, static_cast<int>(d));
  return x;
}

void GroupNorm(NodeReader& r) {
  Graph& g = r.g();
  const int x = r.As(r.TensorArg(0, "input"), r.type());
  const int weight = Optional(r, 1, "weight", r.type()), bias = Optional(r, 2, "bias", r.type());
  const auto groups = ReadGroups(r, x, 6);
  const double eps = r.Number(7, "eps", 1e-5);
  if (!r.ok() || !groups) return;
  const Norm norm = Normalize(g, g.Split(x, 1, groups->channels_per_group), groups->dims, eps);
  const int y =
      Affine(g, norm.normal, PerChannel(g, weight, *groups), PerChannel(g, bias, *groups));
  r.Result(0, g.Merge(y, 1));
  r.Result(1, g.Squeeze(norm.mean, groups->dims));
  r.Result(2, g.Squeeze(norm.rstd, groups->dims));
}

void GroupNormBackward(NodeReader& r) {
  Graph& g = r.g();
  const Tensor input = r.TensorArg(1, "input");
  const Type type = ComputeType(input.dtype);
  int grad = r.As(r.TensorArg(0, "grad_out"), type), x = r.As(input, type);
  int mean = r.As(r.TensorArg(2, "mean"), type), rstd = r.As(r.TensorArg(3, "rstd"), type);
  const int weight = Optional(r, 4, "weight", type);
  const auto groups = ReadGroups(r, x, 8);
  if (!r.ok() || !groups) return;
  grad = g.Split(grad, 1, groups->channels_per_group);
  x = g.Split(x, 1, groups->channels_per_group);
  mean = PerGroup(g, mean, *groups);
  rstd = PerGroup(g, rstd, *groups);
  const int normal = g.Mul(g.Sub(x, mean), rstd);
  const int channels = PerChannel(g, weight, *groups);
  if (Wanted(r, 9, 0)) {
    const int gradient =
        CentredNormGradient(r, grad, channels, x, mean, rstd, normal, groups->dims);
    r.Result(0, g.Merge(gradient, 1));
  }
  std::vector<int> rows = Range(3, groups->rank);
  rows.insert(rows.begin(), 0);
  for (size_t out : {size_t{1}, size_t{2}}) {
    if (!Wanted(r, 9, out)) continue;
    const int sum = g.Reduce(ReduceOp::kSum, out == 1 ? g.Mul(grad, normal) : grad, rows);
    r.Result(out, g.Merge(g.Squeeze(sum, rows), 0));
  }
}

}  // namespace

const LowerTable& NormTable() {
  static const LowerTable kTable = {
      {"aten::native_layer_norm", LayerNorm},
      {"aten::native_layer_norm_backward", LayerNormBackward},
      {"aten::_fused_rms_norm", RmsNorm},
      {"aten::_fused_rms_norm_backward", RmsNormBackward},
      {"aten::native_group_norm", GroupNorm},
      {"aten::native_group_norm_backward", GroupNormBackward},
  };
  return kTable;
}

}  // namespace cudaforge::rows
