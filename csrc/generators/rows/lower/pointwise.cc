// Arithmetic, comparison, logic and conversion.
#include <limits>

#include "generators/rows/lower/node.h"

namespace cudaforge::rows {
namespace {

// torch.promote_types for the dtypes that signatures have.
DType Promote(DType a, DType b) {
  if (a == b) return a;
  auto rank = [](DType dtype) {
    switch (dtype) {
      case DType::kBool:
        return 0;
      case DType::kInt32:
        return 1;
      case DType::kInt64:
        return 2;
      case DType::kFloat16:
        return 3;
      case DType::kBFloat16:
        return 3;
      case DType::kFloat32:
        return 4;
      default:
        return 5;
    }
  };
  if (rank(a) == 3 && rank(b) == 3) return DType::kFloat32;
  return rank(a) > rank(b) ? a : b;
}

int Category(DType dtype) { return dtype == DType::kBool ? 0 : IsFloating(dtype) ? 2 : 1; }

// torch.result_type: by category, tensors with dimensions win over 0-d tensors, and those over
// scalars.
DType CommonDType(NodeReader& r, const std::vector<std::pair<size_t, const char*>>& args) {
  std::optional<DType> by_level[3];
  for (const auto& [position, name] : args) {
    int level = 2;
    DType dtype = DType::kInt64;
    if (r.IsTensor(position, name)) {
      const Tensor tensor = r.TensorArg(position, name);
      level = r.g().sizes(tensor.node).empty() ? 1 : 0;
      dtype = tensor.dtype;
    } else {
      const Json& arg = r.Arg(position, name);
      if (arg.is_boolean()) dtype = DType::kBool;
      if (!arg.is_boolean() && !arg.is_number_integer()) dtype = DType::kFloat32;
    }
    by_level[level] = by_level[level] ? Promote(*by_level[level], dtype) : dtype;
  }
  std::optional<DType> result;
  for (const auto& dtype : by_level) {
    if (!dtype) continue;
    if (!result) {
      result = dtype;
    } else if (Category(*dtype) > Category(*result)) {
      result = Promote(*result, *dtype);
    }
  }
  return result.value_or(DType::kFloat32);
}

bool ExactArg(NodeReader& r, size_t position, const char* name) {
  return r.IsTensor(position, name) && r.TensorArg(position, name).exact &&
         r.TensorArg(position, name).dtype == r.spec().dtype;
}

template <ScalarOp op>
void FloatUnary(NodeReader& r) {
  if (!IsFloatType(r.type())) return r.Fail("the result is not floating-point");
  r.Result(0, r.g().Unary(op, r.As(r.TensorArg(0, "self"), r.type())));
}

// Ops whose result is exact if the operand is: neg, abs.
template <ScalarOp op>
void ExactUnary(NodeReader& r) {
  if (r.type() == Type::kBool) return r.Fail("has no lowering for bool");
  r.Result(0, r.g().Unary(op, r.As(r.TensorArg(0, "self"), r.type())), ExactArg(r, 0, "self"));
}

// Discontinuous ops take the operand exactly as in ATen. Rounding ops do not change integers.
template <ScalarOp op>
void StepUnary(NodeReader& r) {
  const Tensor self = r.TensorArg(0, "self");
  const int value = r.g().Cast(r.Exact(self), r.type());
  const bool keeps = op != ScalarOp::kSign && !IsFloatType(r.type());
  if (r.type() == Type::kBool) return r.Fail("has no lowering for bool");
  r.Result(0, keeps ? value : r.g().Unary(op, value), true);
}

int Scaled(NodeReader& r, int value, size_t position) {
  return r.Number(position, "alpha", 1) == 1
             ? value
             : r.g().Mul(value, r.Operand(position, "alpha", r.type()));
}

void Add(NodeReader& r) {
  const int a = r.Operand(0, "self", r.type());
  if (r.type() == Type::kBool) {
    return r.Result(0, r.g().Pointwise(ScalarOp::kOr, {a, r.Operand(1, "other", r.type())}));
  }
  r.Result(0, r.g().Add(a, Scaled(r, r.Operand(1, "other", r.type()), 2)));
}

void Sub(NodeReader& r) {
  if (r.type() == Type::kBool) return r.Fail("has no lowering for bool");
  const int a = r.Operand(0, "self", r.type());
  r.Result(0, r.g().Sub(a, Scaled(r, r.Operand(1, "other", r.type()), 2)));
}

void Rsub(NodeReader& r) {
  if (r.type() == Type::kBool) return r.Fail("has no lowering for bool");
  const int a = r.Operand(0, "self", r.type());
  r.Result(0, r.g().Sub(r.Operand(1, "other", r.type()), Scaled(r, a, 2)));
}

void Mul(NodeReader& r) {
  const int a = r.Operand(0, "self", r.type()), b = r.Operand(1, "other", r.type());
  const ScalarOp op = r.type() == Type::kBool ? ScalarOp::kAnd : ScalarOp::kMul;
  r.Result(0, r.g().Pointwise(op, {a, b}));
}

void Div(NodeReader& r) {
  if (!IsFloatType(r.type())) return r.Fail("integer division has no lowering");
  r.Result(0, r.g().Div(r.Operand(0, "self", r.type()), r.Operand(1, "other", r.type())));
}

void DivMode(NodeReader& r) {
  const std::string mode = r.Text(2, "rounding_mode", "");
  if (mode.empty()) return Div(r);
  if (!IsFloatType(r.type())) return r.Fail("integer division has no lowering");
  Graph& g = r.g();
  const int a = r.Rounded(r.Operand(0, "self", r.type()), r.spec().dtype);
  const int b = r.Rounded(r.Operand(1, "other", r.type()), r.spec().dtype);
  const int quotient = g.Div(a, b);
  if (mode == "trunc") return r.Result(0, g.Unary(ScalarOp::kTrunc, quotient));
  if (mode != "floor") return r.Fail("unknown rounding mode");
  // As in ATen: uses the exact remainder, so that rounding of the quotient cannot cross an integer.
  const int zero = g.Like(a, 0), one = g.Like(a, 1);
  const int mod = g.Pointwise(ScalarOp::kFmod, {a, b});
  const int exact = g.Div(g.Sub(a, mod), b);
  const int signs_differ = g.Pointwise(ScalarOp::kNe, {g.Pointwise(ScalarOp::kLt, {b, zero}),
                                                       g.Pointwise(ScalarOp::kLt, {mod, zero})});
  const int below =
      g.Pointwise(ScalarOp::kAnd, {g.Pointwise(ScalarOp::kNe, {mod, zero}), signs_differ});
  const int lowered = g.Where(below, g.Sub(exact, one), exact);
  const int floor = g.Unary(ScalarOp::kFloor, lowered);
  const int up = g.Pointwise(ScalarOp::kGt, {g.Sub(lowered, floor), g.Like(a, 0.5)});
  const int nearest = g.Where(up, g.Add(floor, one), floor);
  const int signed_zero = g.Mul(zero, quotient);
  const int result = g.Where(g.Pointwise(ScalarOp::kNe, {lowered, zero}), nearest, signed_zero);
  r.Result(0, g.Where(g.Pointwise(ScalarOp::kEq, {b, zero}), quotient, result));
}

template <ScalarOp op>
void Modulo(NodeReader& r) {
  if (!IsFloatType(r.type())) return r.Fail("integer division has no lowering");
  const DType half = r.spec().dtype;
  const int a = r.Rounded(r.Operand(0, "self", r.type()), half);
  r.Result(0, r.g().Pointwise(op, {a, r.Rounded(r.Operand(1, "other", r.type()), half)}));
}

template <ScalarOp op>
void Extremum(NodeReader& r) {
  const int a = r.Operand(0, "self", r.type()), b = r.Operand(1, "other", r.type());
  const ScalarOp logic = op == ScalarOp::kMax ? ScalarOp::kOr : ScalarOp::kAnd;
  r.Result(0, r.g().Pointwise(r.type() == Type::kBool ? logic : op, {a, b}),
           ExactArg(r, 0, "self") && ExactArg(r, 1, "other"));
}

void Clamp(NodeReader& r) {
  if (r.type() == Type::kBool) return r.Fail("has no lowering for bool");
  int value = r.Operand(0, "self", r.type());
  if (!r.Arg(1, "min").is_null()) {
    value = r.g().Pointwise(ScalarOp::kMax, {value, r.Operand(1, "min", r.type())});
  }
  if (!r.Arg(2, "max").is_null()) {
    value = r.g().Pointwise(ScalarOp::kMin, {value, r.Operand(2, "max", r.type())});
  }
  r.Result(0, value);
}

template <ScalarOp op>
void ClampOneSide(NodeReader& r) {
  if (r.type() == Type::kBool) return r.Fail("has no lowering for bool");
  const int bound = r.Operand(1, op == ScalarOp::kMax ? "min" : "max", r.type());
  r.Result(0, r.g().Pointwise(op, {r.Operand(0, "self", r.type()), bound}));
}

template <ScalarOp op>
void Compare(NodeReader& r) {
  const DType common = CommonDType(r, {{0, "self"}, {1, "other"}});
  auto operand = [&](size_t position, const char* name) {
    if (r.IsTensor(position, name)) {
      const Tensor tensor = r.TensorArg(position, name);
      const int value = r.g().Cast(r.Exact(tensor), ComputeType(common));
      return tensor.dtype == common ? value : r.Rounded(value, common);
    }
    return r.Rounded(r.Operand(position, name, ComputeType(common)), common);
  };
  const int a = operand(0, "self"), b = operand(1, "other");
  if (common != DType::kBool) return r.Result(0, r.g().Pointwise(op, {a, b}));
  r.Result(0, r.g().Pointwise(op, {r.g().Cast(a, Type::kI32), r.g().Cast(b, Type::kI32)}));
}

template <ScalarOp op>
void Logical(NodeReader& r) {
  const int a = r.As(r.TensorArg(0, "self"), Type::kBool);
  r.Result(0, r.g().Pointwise(op, {a, r.As(r.TensorArg(1, "other"), Type::kBool)}));
}

void LogicalNot(NodeReader& r) {
  r.Result(0, r.g().Unary(ScalarOp::kLogicalNot, r.As(r.TensorArg(0, "self"), Type::kBool)));
}

template <ScalarOp op>
void Bitwise(NodeReader& r) {
  if (IsFloatType(r.type())) return r.Fail("bits of floats");
  const int a = r.Operand(0, "self", r.type());
  r.Result(0, r.g().Pointwise(op, {a, r.Operand(1, "other", r.type())}));
}

void BitwiseNot(NodeReader& r) {
  if (IsFloatType(r.type())) return r.Fail("bits of floats");
  const ScalarOp op = r.type() == Type::kBool ? ScalarOp::kLogicalNot : ScalarOp::kBitwiseNot;
  r.Result(0, r.g().Unary(op, r.As(r.TensorArg(0, "self"), r.type())));
}

void Where(NodeReader& r) {
  const int condition = r.As(r.TensorArg(0, "condition"), Type::kBool);
  const int a = r.Operand(1, "self", r.type()), b = r.Operand(2, "other", r.type());
  r.Result(0, r.g().Where(condition, a, b), ExactArg(r, 1, "self") && ExactArg(r, 2, "other"));
}

void IsNan(NodeReader& r) {
  const Tensor self = r.TensorArg(0, "self");
  if (!IsFloating(self.dtype)) return r.Fail("has no lowering for integers");
  r.Result(0, r.g().Unary(ScalarOp::kIsNan, self.node));
}

void IsInf(NodeReader& r) {
  const Tensor self = r.TensorArg(0, "self");
  if (!IsFloating(self.dtype)) return r.Fail("has no lowering for integers");
  const int size = r.g().Unary(ScalarOp::kAbs, r.Exact(self));
  const double infinity = std::numeric_limits<double>::infinity();
  r.Result(0, r.g().Pointwise(ScalarOp::kEq, {size, r.g().Like(size, infinity)}));
}

void PowScalar(NodeReader& r) {
  Graph& g = r.g();
  const double exponent = r.Number(1, "exponent", 0);
  if (r.type() == Type::kBool) return r.Fail("has no lowering for bool");
  const int x = r.As(r.TensorArg(0, "self"), r.type());
  if (exponent == 1) return r.Result(0, x);
  if (exponent == 2) return r.Result(0, g.Mul(x, x));
  if (exponent == 3) return r.Result(0, g.Mul(g.Mul(x, x), x));
  if (!IsFloatType(r.type())) return r.Fail("integer powers above 3 have no lowering");
  if (exponent == 0.5) return r.Result(0, g.Unary(ScalarOp::kSqrt, x));
  if (exponent == -0.5) return r.Result(0, g.Unary(ScalarOp::kRsqrt, x));
  if (exponent == -1) return r.Result(0, g.Unary(ScalarOp::kReciprocal, x));
  r.Result(0, g.Pointwise(ScalarOp::kPow, {x, g.Like(x, exponent)}));
}

void PowTensor(NodeReader& r) {
  if (!IsFloatType(r.type())) return r.Fail("integer powers have no lowering");
  const int x = r.Operand(0, "self", r.type());
  r.Result(0, r.g().Pointwise(ScalarOp::kPow, {x, r.Operand(1, "exponent", r.type())}));
}

void Square(NodeReader& r) {
  if (r.type() == Type::kBool) return r.Fail("has no lowering for bool");
  const int x = r.As(r.TensorArg(0, "self"), r.type());
  r.Result(0, r.g().Mul(x, x));
}

void Exp2(NodeReader& r) {
  const int x = r.As(r.TensorArg(0, "self"), r.type());
  r.Result(0, r.g().Pointwise(ScalarOp::kPow, {r.g().Like(x, 2), x}));
}

void Atan2(NodeReader& r) {
  const int y = r.Operand(0, "self", r.type());
  r.Result(0, r.g().Pointwise(ScalarOp::kAtan2, {y, r.Operand(1, "other", r.type())}));
}

void Convert(NodeReader& r) {
  const Tensor self = r.TensorArg(0, "self");
  r.Result(0, r.As(self, r.type()), self.exact && self.dtype == r.spec().dtype);
}

// A constant with the output's shape.
void Fill(NodeReader& r, int constant) {
  r.Result(0, r.g().View(constant, r.spec().sizes, {}, -1));
}

void ZerosLike(NodeReader& r) { Fill(r, r.g().Number(r.type(), 0)); }
void OnesLike(NodeReader& r) { Fill(r, r.g().Number(r.type(), 1)); }
void FullLike(NodeReader& r) { Fill(r, r.Operand(1, "fill_value", r.type())); }
void ScalarTensor(NodeReader& r) { Fill(r, r.Operand(0, "s", r.type())); }

}  // namespace

const LowerTable& PointwiseTable() {
  using S = ScalarOp;
  static const LowerTable kTable = {
      {"aten::add.Tensor", Add},
      {"aten::add.Scalar", Add},
      {"aten::sub.Tensor", Sub},
      {"aten::sub.Scalar", Sub},
      {"aten::rsub.Tensor", Rsub},
      {"aten::rsub.Scalar", Rsub},
      {"aten::mul.Tensor", Mul},
      {"aten::mul.Scalar", Mul},
      {"aten::div.Tensor", Div},
      {"aten::div.Scalar", Div},
      {"aten::div.Tensor_mode", DivMode},
      {"aten::div.Scalar_mode", DivMode},
      {"aten::fmod.Tensor", Modulo<S::kFmod>},
      {"aten::fmod.Scalar", Modulo<S::kFmod>},
      {"aten::remainder.Tensor", Modulo<S::kRemainder>},
      {"aten::remainder.Scalar", Modulo<S::kRemainder>},
      {"aten::neg", ExactUnary<S::kNeg>},
      {"aten::abs", ExactUnary<S::kAbs>},
      {"aten::exp", FloatUnary<S::kExp>},
      {"aten::exp2", Exp2},
      {"aten::expm1", FloatUnary<S::kExpm1>},
      {"aten::log", FloatUnary<S::kLog>},
      {"aten::log1p", FloatUnary<S::kLog1p>},
      {"aten::log2", FloatUnary<S::kLog2>},
      {"aten::sqrt", FloatUnary<S::kSqrt>},
      {"aten::rsqrt", FloatUnary<S::kRsqrt>},
      {"aten::reciprocal", FloatUnary<S::kReciprocal>},
      {"aten::sin", FloatUnary<S::kSin>},
      {"aten::cos", FloatUnary<S::kCos>},
      {"aten::tanh", FloatUnary<S::kTanh>},
      {"aten::erf", FloatUnary<S::kErf>},
      {"aten::sigmoid", FloatUnary<S::kSigmoid>},
      {"aten::floor", StepUnary<S::kFloor>},
      {"aten::ceil", StepUnary<S::kCeil>},
      {"aten::round", StepUnary<S::kRound>},
      {"aten::trunc", StepUnary<S::kTrunc>},
      {"aten::sign", StepUnary<S::kSign>},
      {"aten::isnan", IsNan},
      {"aten::isinf", IsInf},
      {"aten::atan2", Atan2},
      {"aten::square", Square},
      {"aten::pow.Tensor_Scalar", PowScalar},
      {"aten::pow.Tensor_Tensor", PowTensor},
      {"aten::pow.Scalar", PowTensor},
      {"aten::maximum", Extremum<S::kMax>},
      {"aten::minimum", Extremum<S::kMin>},
      {"aten::clamp", Clamp},
      {"aten::clamp.Tensor", Clamp},
      {"aten::clamp_min", ClampOneSide<S::kMax>},
      {"aten::clamp_min.Tensor", ClampOneSide<S::kMax>},
      {"aten::clamp_max", ClampOneSide<S::kMin>},
      {"aten::clamp_max.Tensor", ClampOneSide<S::kMin>},
      {"aten::where.self", Where},
      {"aten::where.ScalarSelf", Where},
      {"aten::where.ScalarOther", Where},
      {"aten::eq.Tensor", Compare<S::kEq>},
      {"aten::eq.Scalar", Compare<S::kEq>},
      {"aten::ne.Tensor", Compare<S::kNe>},
      {"aten::ne.Scalar", Compare<S::kNe>},
      {"aten::lt.Tensor", Compare<S::kLt>},
      {"aten::lt.Scalar", Compare<S::kLt>},
      {"aten::le.Tensor", Compare<S::kLe>},
      {"aten::le.Scalar", Compare<S::kLe>},
      {"aten::gt.Tensor", Compare<S::kGt>},
      {"aten::gt.Scalar", Compare<S::kGt>},
      {"aten::ge.Tensor", Compare<S::kGe>},
      {"aten::ge.Scalar", Compare<S::kGe>},
      {"aten::logical_and", Logical<S::kAnd>},
      {"aten::logical_or", Logical<S::kOr>},
      {"aten::logical_xor", Logical<S::kXor>},
      {"aten::logical_not", LogicalNot},
      {"aten::bitwise_and.Tensor", Bitwise<S::kAnd>},
      {"aten::bitwise_and.Scalar", Bitwise<S::kAnd>},
      {"aten::bitwise_or.Tensor", Bitwise<S::kOr>},
      {"aten::bitwise_or.Scalar", Bitwise<S::kOr>},
      {"aten::bitwise_xor.Tensor", Bitwise<S::kXor>},
      {"aten::bitwise_xor.Scalar", Bitwise<S::kXor>},
      {"aten::bitwise_not", BitwiseNot},
      {"aten::_to_copy", Convert},
      {"aten::clone", Convert},
      {"aten::zeros_like", ZerosLike},
      {"aten::ones_like", OnesLike},
      {"aten::full_like", FullLike},
      {"aten::full", FullLike},
      {"aten::scalar_tensor", ScalarTensor},
  };
  return kTable;
}

}  // namespace cudaforge::rows
