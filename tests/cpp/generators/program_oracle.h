// A row program run by plain loops in double and 64-bit integers: what emitted kernels are compared
// with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "generators/row_program.h"

namespace cudaforge::rows {

// A number of any Type; `i` holds integers and booleans.
struct OracleNumber {
  double f = 0;
  int64_t i = 0;
};

class ProgramOracle {
 public:
  // Buffers hold one number per storage element.
  using Buffer = std::vector<OracleNumber>;

  static void Run(const Stage& stage, const std::vector<Buffer>& inputs,
                  std::vector<Buffer>& outputs) {
    ProgramOracle(stage, inputs, outputs).RunRows();
  }

 private:
  ProgramOracle(const Stage& stage, const std::vector<Buffer>& inputs, std::vector<Buffer>& outputs)
      : stage_(stage), inputs_(inputs), outputs_(outputs) {}

  static bool Float(Type t) { return t == Type::kF32 || t == Type::kF64; }
  static std::vector<int64_t> Unflatten(int64_t flat, const std::vector<int64_t>& sizes) {
    std::vector<int64_t> index(sizes.size());
    for (size_t d = sizes.size(); d-- > 0; flat /= sizes[d]) index[d] = flat % sizes[d];
    return index;
  }
  // The element offset, or -1 outside.
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

  void RunRows() {
    const int64_t length = stage_.row_length();
    const size_t count = stage_.values.size();
    for (int64_t row = 0; row < stage_.rows(); ++row) {
      const std::vector<int64_t> o = Unflatten(row, stage_.outer);
      std::vector<std::vector<OracleNumber>> v(
          count, std::vector<OracleNumber>(static_cast<size_t>(length)));
      for (size_t x = 0; x < count; ++x) Evaluate(x, row, o, v);
      for (const Store& store : stage_.stores) {
        for (int64_t e = 0; e < length; ++e) {
          const int64_t at = Locate(store.access, o, Unflatten(e, stage_.inner));
          if (at >= 0) {
            outputs_[static_cast<size_t>(store.buffer.index)][static_cast<size_t>(at)] =
                v[static_cast<size_t>(store.value)][static_cast<size_t>(e)];
          }
        }
      }
    }
  }

  void Evaluate(size_t x, int64_t row, const std::vector<int64_t>& o,
                std::vector<std::vector<OracleNumber>>& v) {
    const Value& value = stage_.values[x];
    const size_t length = v[x].size();
    if (value.kind == Value::Kind::kReduce) {
      const OracleNumber result = Reduce(value, v[static_cast<size_t>(value.operands[0])]);
      std::fill(v[x].begin(), v[x].end(), result);
      return;
    }
    OracleNumber running{value.scan == ScanOp::kSum ? 0.0 : 1.0,
                         value.scan == ScanOp::kSum ? 0 : 1};
    for (size_t e = 0; e < length; ++e) {
      const std::vector<int64_t> i = Unflatten(static_cast<int64_t>(e), stage_.inner);
      auto operand = [&](size_t k) { return v[static_cast<size_t>(value.operands[k])][e]; };
      switch (value.kind) {
        case Value::Kind::kConst:
          v[x][e] = {value.number, value.integer};
          break;
        case Value::Kind::kLoad: {
          const int64_t at = Locate(value.access, o, i);
          v[x][e] = at < 0
                        ? v[static_cast<size_t>(value.out_of_bounds)][e]
                        : inputs_[static_cast<size_t>(value.buffer.index)][static_cast<size_t>(at)];
          break;
        }
        case Value::Kind::kInnerIndex:
          v[x][e].i = value.dim < 0 ? static_cast<int64_t>(e) : i[static_cast<size_t>(value.dim)];
          break;
        case Value::Kind::kOuterIndex:
          v[x][e].i = value.dim < 0 ? row : o[static_cast<size_t>(value.dim)];
          break;
        case Value::Kind::kScan: {
          const OracleNumber y = operand(0);
          const bool sum = value.scan == ScanOp::kSum;
          running = {sum ? running.f + y.f : running.f * y.f,
                     sum ? running.i + y.i : running.i * y.i};
          v[x][e] = running;
          break;
        }
        default: {
          std::vector<OracleNumber> y;
          for (size_t k = 0; k < value.operands.size(); ++k) y.push_back(operand(k));
          v[x][e] = Pointwise(value, y);
        }
      }
    }
  }

  OracleNumber Reduce(const Value& value, const std::vector<OracleNumber>& y) const {
    const bool is_float = Float(stage_.values[static_cast<size_t>(value.operands[0])].type);
    OracleNumber r = y[0];
    int64_t best = 0;
    for (size_t e = 1; e < y.size(); ++e) {
      const bool largest = value.reduce == ReduceOp::kMax || value.reduce == ReduceOp::kArgMax;
      bool better = is_float ? (largest ? y[e].f > r.f : y[e].f < r.f)
                             : (largest ? y[e].i > r.i : y[e].i < r.i);
      if (is_float && std::isnan(y[e].f)) better = true;
      if (is_float && std::isnan(r.f)) better = false;
      switch (value.reduce) {
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
          if (better) {
            r = y[e];
            best = static_cast<int64_t>(e);
          }
      }
    }
    if (value.reduce == ReduceOp::kArgMax || value.reduce == ReduceOp::kArgMin) return {0, best};
    return r;
  }

  // The operations that the tests use.
  OracleNumber Pointwise(const Value& value, const std::vector<OracleNumber>& y) const {
    const Type from = stage_.values[static_cast<size_t>(value.operands[0])].type;
    switch (value.op) {
      case ScalarOp::kExp:
        return {std::exp(y[0].f), 0};
      case ScalarOp::kLog:
        return {std::log(y[0].f), 0};
      case ScalarOp::kRsqrt:
        return {1 / std::sqrt(y[0].f), 0};
      case ScalarOp::kAdd:
        return {y[0].f + y[1].f, y[0].i + y[1].i};
      case ScalarOp::kSub:
        return {y[0].f - y[1].f, y[0].i - y[1].i};
      case ScalarOp::kMul:
        return {y[0].f * y[1].f, y[0].i * y[1].i};
      case ScalarOp::kDiv:
        return {y[0].f / y[1].f, 0};
      case ScalarOp::kEq:
        return {0, Float(from) ? y[0].f == y[1].f : y[0].i == y[1].i};
      case ScalarOp::kGt:
        return {0, Float(from) ? y[0].f > y[1].f : y[0].i > y[1].i};
      case ScalarOp::kWhere:
        return y[0].i != 0 ? y[1] : y[2];
      case ScalarOp::kCast: {
        const double f = Float(from) ? y[0].f : static_cast<double>(y[0].i);
        if (Float(value.type)) return {f, 0};
        const int64_t i = Float(from) ? static_cast<int64_t>(y[0].f) : y[0].i;
        return {0, value.type == Type::kBool ? static_cast<int64_t>(f != 0) : i};
      }
      default:
        CF_CHECK(false) << "the oracle does not know this operation";
        return {};
    }
  }

  const Stage& stage_;
  const std::vector<Buffer>& inputs_;
  std::vector<Buffer>& outputs_;
};

}  // namespace cudaforge::rows
