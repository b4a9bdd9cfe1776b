// Activations and their derivatives, as in ATen.
#include <cmath>
#include <numbers>

#include "generators/rows/lower/node.h"

namespace cudaforge::rows {
namespace {

constexpr double kTanhScale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2/pi)
constexpr double kTanhCube = 0.044715;

bool IsFloatResult(NodeReader& r) {
  if (IsFloatType(r.type())) return true;
  r.Fail("the result is not floating-point");
  return false;
}

int Self(NodeReader& r) { return r.As(r.TensorArg(0, "self"), r.type()); }

void Relu(NodeReader& r) {
  const Tensor self = r.TensorArg(0, "self");
  const int x = r.As(self, r.type());
  if (r.type() == Type::kBool) return r.Fail("has no lowering for bool");
  r.Result(0, r.g().Pointwise(ScalarOp::kMax, {x, r.g().Like(x, 0)}), self.exact);
}

void Gelu(NodeReader& r) {
  if (!IsFloatResult(r)) return;
  const bool by_tanh = r.Text(1, "approximate", "none") == "tanh";
  r.Result(0, r.g().Unary(by_tanh ? ScalarOp::kGeluTanh : ScalarOp::kGelu, Self(r)));
}

void GeluBackward(NodeReader& r) {
  if (!IsFloatResult(r)) return;
  Graph& g = r.g();
  const int grad = r.As(r.TensorArg(0, "grad_output"), r.type());
  const int x = r.As(r.TensorArg(1, "self"), r.type());
  const int half = g.Like(x, 0.5), one = g.Like(x, 1);
  int slope;
  if (r.Text(2, "approximate", "none") == "tanh") {
    const int square = g.Mul(x, x);
    const int cube = g.Mul(g.Mul(square, x), g.Like(x, kTanhCube));
    const int t = g.Unary(ScalarOp::kTanh, g.Mul(g.Like(x, kTanhScale), g.Add(x, cube)));
    const int left = g.Mul(half, g.Add(one, t));
    const int inner =
        g.Mul(g.Like(x, kTanhScale), g.Add(one, g.Mul(g.Like(x, 3 * kTanhCube), square)));
    const int right = g.Mul(g.Mul(g.Mul(half, x), g.Sub(one, g.Mul(t, t))), inner);
    slope = g.Add(left, right);
  } else {
    const int cdf = g.Mul(
        half, g.Add(one, g.Unary(ScalarOp::kErf, g.Mul(x, g.Like(x, 1 / std::numbers::sqrt2)))));
    const double scale = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    const int bell = g.Unary(ScalarOp::kExp, g.Mul(g.Mul(x, x), g.Like(x, -0.5)));
    slope = g.Add(cdf, g.Mul(x, g.Mul(bell, g.Like(x, scale))));
  }
  r.Result(0, g.Mul(grad, slope));
}

void Silu(NodeReader& r) {
  if (!IsFloatResult(r)) return;
  const int x = Self(r);
  r.Result(0, r.g().Mul(x, r.g().Unary(ScalarOp::kSigmoid, x)));
}

void SiluBackward(NodeReader& r) {
  if (!IsFloatResult(r)) return;
  Graph& g = r.g();
  const int grad = r.As(r.TensorArg(0, "grad_output"), r.type());
  const int x = r.As(r.TensorArg(1, "self"), r.type());
  const int s = g.Unary(ScalarOp::kSigmoid, x), one = g.Like(x, 1);
  r.Result(0, g.Mul(g.Mul(grad, s), g.Add(one, g.Mul(x, g.Sub(one, s)))));
}

void SigmoidBackward(NodeReader& r) {
  if (!IsFloatResult(r)) return;
  Graph& g = r.g();
  const int grad = r.As(r.TensorArg(0, "grad_output"), r.type());
  const int y = r.As(r.TensorArg(1, "output"), r.type());
  r.Result(0, g.Mul(g.Mul(grad, g.Sub(g.Like(y, 1), y)), y));
}

void TanhBackward(NodeReader& r) {
  if (!IsFloatResult(r)) return;
  Graph& g = r.g();
  const int grad = r.As(r.TensorArg(0, "grad_output"), r.type());
  const int y = r.As(r.TensorArg(1, "output"), r.type());
  r.Result(0, g.Mul(grad, g.Sub(g.Like(y, 1), g.Mul(y, y))));
}

void ThresholdBackward(NodeReader& r) {
  Graph& g = r.g();
  const Tensor self = r.TensorArg(1, "self"), gradient = r.TensorArg(0, "grad_output");
  const int grad = r.As(gradient, r.type());
  const int x = r.Exact(self);
  const int threshold = r.Rounded(r.Operand(2, "threshold", g.node(x).type), self.dtype);
  const int below = g.Pointwise(ScalarOp::kLe, {x, threshold});
  r.Result(0, g.Where(below, g.Like(grad, 0), grad), gradient.exact);
}

void LeakyRelu(NodeReader& r) {
  if (!IsFloatResult(r)) return;
  Graph& g = r.g();
  const int x = Self(r);
  const int scaled = g.Mul(x, g.Like(x, r.Number(1, "negative_slope", 0.01)));
  r.Result(0, g.Where(g.Pointwise(ScalarOp::kGt, {x, g.Like(x, 0)}), x, scaled));
}

void Hardtanh(NodeReader& r) {
  Graph& g = r.g();
  const int x = Self(r);
  if (r.type() == Type::kBool) return r.Fail("has no lowering for bool");
  const auto bound = [&](size_t position, const char* name, double absent) {
    return r.Arg(position, name).is_null() ? g.Like(x, absent)
                                           : r.Operand(position, name, g.node(x).type);
  };
  const int low = bound(1, "min_val", -1), high = bound(2, "max_val", 1);
  r.Result(0, g.Pointwise(ScalarOp::kMin, {g.Pointwise(ScalarOp::kMax, {x, low}), high}));
}

void Elu(NodeReader& r) {
  if (!IsFloatResult(r)) return;
  Graph& g = r.g();
  const double alpha = r.Number(1, "alpha", 1), scale = r.Number(2, "scale", 1);
  const int x = Self(r);
  const int input = g.Mul(x, g.Like(x, r.Number(3, "input_scale", 1)));
  const int low = g.Mul(g.Unary(ScalarOp::kExpm1, input), g.Like(x, alpha * scale));
  const int high = g.Mul(x, g.Like(x, scale));
  r.Result(0, g.Where(g.Pointwise(ScalarOp::kLe, {x, g.Like(x, 0)}), low, high));
}

void Softplus(NodeReader& r) {
  if (!IsFloatResult(r)) return;
  Graph& g = r.g();
  const double beta = r.Number(1, "beta", 1);
  const int x = Self(r);
  const int scaled = g.Mul(x, g.Like(x, beta));
  const int soft =
      g.Div(g.Unary(ScalarOp::kLog1p, g.Unary(ScalarOp::kExp, scaled)), g.Like(x, beta));
  const int linear = g.Pointwise(ScalarOp::kGt, {scaled, g.Like(x, r.Number(2, "threshold", 20))});
  r.Result(0, g.Where(linear, x, soft));
}

// min(max(x + 3, 0), 6) / 6
int HardGate(Graph& g, int x) {
  const int shifted = g.Add(x, g.Like(x, 3));
  const int low = g.Pointwise(ScalarOp::kMax, {shifted, g.Like(x, 0)});
  return g.Div(g.Pointwise(ScalarOp::kMin, {low, g.Like(x, 6)}), g.Like(x, 6));
}

void Hardsigmoid(NodeReader& r) {
  if (IsFloatResult(r)) r.Result(0, HardGate(r.g(), Self(r)));
}

void Hardswish(NodeReader& r) {
  if (!IsFloatResult(r)) return;
  const int x = Self(r);
  r.Result(0, r.g().Mul(x, HardGate(r.g(), x)));
}

}  // namespace

const LowerTable& ActivationTable() {
  static const LowerTable kTable = {
      {"aten::relu", Relu},
      {"aten::gelu", Gelu},
      {"aten::gelu_backward", GeluBackward},
      {"aten::silu", Silu},
      {"aten::silu_backward", SiluBackward},
      {"aten::sigmoid_backward", SigmoidBackward},
      {"aten::tanh_backward", TanhBackward},
      {"aten::threshold_backward", ThresholdBackward},
      {"aten::leaky_relu", LeakyRelu},
      {"aten::hardtanh", Hardtanh},
      {"aten::elu", Elu},
      {"aten::softplus", Softplus},
      {"aten::hardsigmoid", Hardsigmoid},
      {"aten::hardswish", Hardswish},
  };
  return kTable;
}

}  // namespace cudaforge::rows
