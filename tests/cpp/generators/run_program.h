// Runs a whole row program with plain loops in double and 64-bit integers: the oracle for lowered
// programs and emitted kernels. Supports every operation.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "generators/rows/row_program.h"

namespace cudaforge::rows {

// A number of any type: floats in `f`, integers and booleans in `i`.
struct Num {
  double f = 0;
  int64_t i = 0;
};
using Memory = std::vector<Num>;  // one number per element of a buffer's storage

// Rounds to `bits` of precision (11: float16, 8: bfloat16), ties to even; exponents below `lowest`
// are denormal.
inline double RoundTo(double x, int bits, int lowest, double largest) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent;
  std::frexp(x, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent, lowest) - bits);
  const double rounded = std::nearbyint(x / unit) * unit;
  return std::abs(rounded) > largest ? std::copysign(INFINITY, x) : rounded;
}
inline double RoundHalf(double x) { return RoundTo(x, 11, -13, 65504); }
inline double RoundBF16(double x) { return RoundTo(x, 8, -125, 3.3895313892515355e38); }

class ProgramRunner {
 public:
  // inputs[i]: the storage of input i. Returns the storages of the outputs; elements never written
  // are 0.
  static std::vector<Memory> Run(const Program& program, const OpSignature& signature,
                                 const std::vector<Memory>& inputs) {
    ProgramRunner runner;
    runner.memory_[0] = inputs;
    for (size_t o = 0; o < signature.outputs.size(); ++o) {
      const TensorSpec& spec = signature.output_spec(o);
      runner.memory_[1].emplace_back(
          static_cast<size_t>(spec.StorageBytes() / DTypeSize(spec.dtype)));
    }
    for (int64_t bytes : program.scratch_bytes) {
      runner.memory_[2].emplace_back(static_cast<size_t>(bytes));
    }
    for (const Stage& stage : program.stages) runner.RunStage(stage);
    return runner.memory_[1];
  }

 private:
  static bool IsFloat(Type t) { return t == Type::kF32 || t == Type::kF64; }

  static std::vector<int64_t> Unflatten(int64_t flat, const std::vector<int64_t>& sizes) {
    std::vector<int64_t> index(sizes.size());
    for (size_t d = sizes.size(); d-- > 0; flat /= sizes[d]) index[d] = flat % sizes[d];
    return index;
  }

  // The storage element, or -1 when out of bounds.
  static int64_t Locate(const Access& access, const std::vector<int64_t>& o,
                        const std::vector<int64_t>& i) {
    int64_t offset = 0;
    for (size_t d = 0; d < access.dims.size(); ++d) {
      const DimIndex& dim = access.dims[d];
      int64_t n = dim.offset;
      for (size_t k = 0; k < o.size(); ++k) n += dim.outer_coef[k] * o[k];
      for (size_t k = 0; k < i.size(); ++k) n += dim.inner_coef[k] * i[k];
      if (dim.bound >= 0 && (n < 0 || n % dim.div != 0 || n / dim.div >= dim.bound)) return -1;
      offset += n / dim.div * access.strides[d];
    }
    return offset;
  }

  Memory& At(const BufferRef& buffer) {
    return memory_[static_cast<int>(buffer.kind)].at(static_cast<size_t>(buffer.index));
  }

  void RunStage(const Stage& stage) {
    const int64_t length = stage.row_length();
    for (int64_t row = 0; row < stage.rows(); ++row) {
      const std::vector<int64_t> o = Unflatten(row, stage.outer);
      std::vector<std::vector<Num>> v(stage.values.size(),
                                      std::vector<Num>(static_cast<size_t>(length)));
      for (size_t x = 0; x < v.size(); ++x) Compute(stage, x, row, o, v);
      for (const Store& store : stage.stores) {
        for (int64_t e = 0; e < length; ++e) {
          Num number = v[static_cast<size_t>(store.value)][static_cast<size_t>(e)];
          if (store.storage == DType::kFloat16) number.f = RoundHalf(number.f);
          if (store.storage == DType::kBFloat16) number.f = RoundBF16(number.f);
          const int64_t at = Locate(store.access, o, Unflatten(e, stage.inner));
          At(store.buffer).at(static_cast<size_t>(at)) = number;
        }
      }
      for (const RunSum& sum : stage.run_sums) {
        Memory& to = memory_[2].at(static_cast<size_t>(sum.scratch));
        for (int64_t e = 0; e < length; ++e) {
          const Num x = v[static_cast<size_t>(sum.value)][static_cast<size_t>(e)];
          Num& all = to.at(static_cast<size_t>(row / stage.rows_per_run * length + e));
          const Num before = row % stage.rows_per_run == 0 ? Num{} : all;
          all = {before.f + x.f, before.i + x.i};
        }
      }
    }
  }

  void Compute(const Stage& stage, size_t x, int64_t row, const std::vector<int64_t>& o,
               std::vector<std::vector<Num>>& v) {
    const Value& value = stage.values[x];
    auto operand = [&](size_t k, size_t e) { return v[static_cast<size_t>(value.operands[k])][e]; };
    if (value.kind == Value::Kind::kReduce) {
      const Type from = stage.values[static_cast<size_t>(value.operands[0])].type;
      const Num result =
          Reduce(value.reduce, v[static_cast<size_t>(value.operands[0])], IsFloat(from));
      for (Num& number : v[x]) number = result;
      return;
    }
    for (size_t e = 0; e < v[x].size(); ++e) {
      const std::vector<int64_t> i = Unflatten(static_cast<int64_t>(e), stage.inner);
      switch (value.kind) {
        case Value::Kind::kConst:
          v[x][e] = {value.number, value.integer};
          break;
        case Value::Kind::kLoad: {
          const int64_t at = Locate(value.access, o, i);
          v[x][e] = at < 0 ? v[static_cast<size_t>(value.out_of_bounds)][e]
                           : At(value.buffer).at(static_cast<size_t>(at));
          break;
        }
        case Value::Kind::kInnerIndex:
          v[x][e].i = value.dim < 0 ? static_cast<int64_t>(e) : i[static_cast<size_t>(value.dim)];
          break;
        case Value::Kind::kOuterIndex:
          v[x][e].i = value.dim < 0 ? row : o[static_cast<size_t>(value.dim)];
          break;
        case Value::Kind::kScan: {
          v[x][e] = operand(0, e);
          if (e == 0) break;
          const Num before = v[x][e - 1], now = v[x][e];
          v[x][e] = value.scan == ScanOp::kSum ? Num{before.f + now.f, before.i + now.i}
                                               : Num{before.f * now.f, before.i * now.i};
          break;
        }
        default: {
          std::vector<Num> y;
          for (size_t k = 0; k < value.operands.size(); ++k) y.push_back(operand(k, e));
          const Type from = stage.values[static_cast<size_t>(value.operands.back())].type;
          v[x][e] = value.op == ScalarOp::kCast ? Cast(y[0], from, value.type)
                    : IsFloat(from)             ? Float(value.op, y)
                                                : Integral(value.op, y, from == Type::kBool);
        }
      }
    }
  }

  static Num Reduce(ReduceOp op, const std::vector<Num>& y, bool is_float) {
    Num r = y[0];
    int64_t best = 0;
    const bool largest = op == ReduceOp::kMax || op == ReduceOp::kArgMax;
    for (size_t e = 1; e < y.size(); ++e) {
      bool better = is_float ? (largest ? y[e].f > r.f : y[e].f < r.f)
                             : (largest ? y[e].i > r.i : y[e].i < r.i);
      if (is_float) better = !std::isnan(r.f) && (better || std::isnan(y[e].f));
      switch (op) {
        case ReduceOp::kSum:
          r = {r.f + y[e].f, r.i + y[e].i};
          break;
        case ReduceOp::kProd:
          r = {r.f * y[e].f, r.i * y[e].i};
          break;
        case ReduceOp::kAny:
          r.i = r.i != 0 || y[e].i != 0;
          break;
        case ReduceOp::kAll:
          r.i = r.i != 0 && y[e].i != 0;
          break;
        default:
          if (better) r = y[e];
          if (better) best = static_cast<int64_t>(e);
      }
    }
    return op == ReduceOp::kArgMax || op == ReduceOp::kArgMin ? Num{0, best} : r;
  }

  static Num Cast(const Num& y, Type from, Type to) {
    if (IsFloat(to)) return {IsFloat(from) ? y.f : static_cast<double>(y.i), 0};
    if (to == Type::kBool) return {0, IsFloat(from) ? y.f != 0 : y.i != 0};
    const int64_t i = IsFloat(from) ? static_cast<int64_t>(y.f) : y.i;
    return {0, to == Type::kI32 ? static_cast<int32_t>(i) : i};
  }

  static Num Float(ScalarOp op, const std::vector<Num>& y) {
    const double a = y[0].f, b = y.size() > 1 ? y[1].f : 0;
    const bool nan = std::isnan(a) || std::isnan(b);
    auto number = [](double f) { return Num{f, 0}; };
    auto truth = [](bool t) { return Num{0, t}; };
    switch (op) {
      case ScalarOp::kNeg:
        return number(-a);
      case ScalarOp::kAbs:
        return number(std::abs(a));
      case ScalarOp::kExp:
        return number(std::exp(a));
      case ScalarOp::kExpm1:
        return number(std::expm1(a));
      case ScalarOp::kLog:
        return number(std::log(a));
      case ScalarOp::kLog1p:
        return number(std::log1p(a));
      case ScalarOp::kLog2:
        return number(std::log2(a));
      case ScalarOp::kSqrt:
        return number(std::sqrt(a));
      case ScalarOp::kRsqrt:
        return number(1 / std::sqrt(a));
      case ScalarOp::kReciprocal:
        return number(1 / a);
      case ScalarOp::kSin:
        return number(std::sin(a));
      case ScalarOp::kCos:
        return number(std::cos(a));
      case ScalarOp::kTanh:
        return number(std::tanh(a));
      case ScalarOp::kErf:
        return number(std::erf(a));
      case ScalarOp::kSigmoid:
        return number(1 / (1 + std::exp(-a)));
      case ScalarOp::kGelu:
        return number(a * 0.5 * (1 + std::erf(a * std::sqrt(0.5))));
      case ScalarOp::kGeluTanh:
        return number(a * 0.5 * (1 + std::tanh(std::sqrt(2 / M_PI) * (a + 0.044715 * a * a * a))));
      case ScalarOp::kFloor:
        return number(std::floor(a));
      case ScalarOp::kCeil:
        return number(std::ceil(a));
      case ScalarOp::kRound:
        return number(std::nearbyint(a));
      case ScalarOp::kTrunc:
        return number(std::trunc(a));
      case ScalarOp::kSign:
        return number(std::isnan(a) ? 0 : (a > 0) - (a < 0));
      case ScalarOp::kIsNan:
        return truth(std::isnan(a));
      case ScalarOp::kLogicalNot:
        return truth(a == 0);
      case ScalarOp::kAdd:
        return number(a + b);
      case ScalarOp::kSub:
        return number(a - b);
      case ScalarOp::kMul:
        return number(a * b);
      case ScalarOp::kDiv:
        return number(a / b);
      case ScalarOp::kMax:
        return number(nan ? NAN : std::max(a, b));
      case ScalarOp::kMin:
        return number(nan ? NAN : std::min(a, b));
      case ScalarOp::kPow:
        return number(std::pow(a, b));
      case ScalarOp::kFmod:
        return number(std::fmod(a, b));
      case ScalarOp::kRemainder: {
        const double mod = std::fmod(a, b);
        return number(mod != 0 && (b < 0) != (mod < 0) ? mod + b : mod);
      }
      case ScalarOp::kAtan2:
        return number(std::atan2(a, b));
      case ScalarOp::kEq:
        return truth(a == b);
      case ScalarOp::kNe:
        return truth(a != b);
      case ScalarOp::kLt:
        return truth(a < b);
      case ScalarOp::kLe:
        return truth(a <= b);
      case ScalarOp::kGt:
        return truth(a > b);
      case ScalarOp::kGe:
        return truth(a >= b);
      case ScalarOp::kWhere:
        return y[0].i != 0 ? y[1] : y[2];
      case ScalarOp::kRoundToHalf:
        return number(RoundHalf(a));
      case ScalarOp::kRoundToBF16:
        return number(RoundBF16(a));
      default:
        CF_CHECK(false) << "not an operation on floats";
        return {};
    }
  }

  static Num Integral(ScalarOp op, const std::vector<Num>& y, bool boolean) {
    const int64_t a = y[0].i, b = y.size() > 1 ? y[1].i : 0;
    auto number = [](int64_t i) { return Num{0, i}; };
    switch (op) {
      case ScalarOp::kNeg:
        return number(-a);
      case ScalarOp::kAbs:
        return number(std::abs(a));
      case ScalarOp::kSign:
        return number((a > 0) - (a < 0));
      case ScalarOp::kLogicalNot:
        return number(a == 0);
      case ScalarOp::kBitwiseNot:
        return number(boolean ? a == 0 : ~a);
      case ScalarOp::kAdd:
        return number(a + b);
      case ScalarOp::kSub:
        return number(a - b);
      case ScalarOp::kMul:
        return number(a * b);
      case ScalarOp::kDiv:
        return number(a / b);
      case ScalarOp::kMax:
        return number(std::max(a, b));
      case ScalarOp::kMin:
        return number(std::min(a, b));
      case ScalarOp::kRemainder:
        return number(((a % b) + b) % b);
      case ScalarOp::kEq:
        return number(a == b);
      case ScalarOp::kNe:
        return number(a != b);
      case ScalarOp::kLt:
        return number(a < b);
      case ScalarOp::kLe:
        return number(a <= b);
      case ScalarOp::kGt:
        return number(a > b);
      case ScalarOp::kGe:
        return number(a >= b);
      case ScalarOp::kAnd:
        return number(a & b);
      case ScalarOp::kOr:
        return number(a | b);
      case ScalarOp::kXor:
        return number(a ^ b);
      case ScalarOp::kWhere:
        return y[0].i != 0 ? y[1] : y[2];
      default:
        CF_CHECK(false) << "not an operation on integers";
        return {};
    }
  }

  std::vector<Memory> memory_[3];  // inputs, outputs, scratch
};

}  // namespace cudaforge::rows
