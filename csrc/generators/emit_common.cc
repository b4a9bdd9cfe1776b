#include "generators/emit_common.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "base/check.h"

namespace cudaforge::rows {
namespace {

bool IsInteger(Type type) { return type == Type::kI64 || type == Type::kI32; }

std::string Call(const char* name, const std::vector<std::string>& operands) {
  std::string text = name;
  for (size_t i = 0; i < operands.size(); ++i) text += (i == 0 ? "(" : ", ") + operands[i];
  return text + ")";
}

const char* FunctionName(ScalarOp op) {
  switch (op) {
    case ScalarOp::kAbs:
      return "cf_abs";
    case ScalarOp::kExp:
      return "cf_exp";
    case ScalarOp::kExpm1:
      return "cf_expm1";
    case ScalarOp::kLog:
      return "cf_log";
    case ScalarOp::kLog1p:
      return "cf_log1p";
    case ScalarOp::kLog2:
      return "cf_log2";
    case ScalarOp::kSqrt:
      return "cf_sqrt";
    case ScalarOp::kRsqrt:
      return "cf_rsqrt";
    case ScalarOp::kReciprocal:
      return "cf_reciprocal";
    case ScalarOp::kSin:
      return "cf_sin";
    case ScalarOp::kCos:
      return "cf_cos";
    case ScalarOp::kTanh:
      return "cf_tanh";
    case ScalarOp::kErf:
      return "cf_erf";
    case ScalarOp::kSigmoid:
      return "cf_sigmoid";
    case ScalarOp::kFloor:
      return "cf_floor";
    case ScalarOp::kCeil:
      return "cf_ceil";
    case ScalarOp::kRound:
      return "cf_round";
    case ScalarOp::kTrunc:
      return "cf_trunc";
    case ScalarOp::kSign:
      return "cf_sign";
    case ScalarOp::kIsNan:
      return "cf_isnan";
    case ScalarOp::kMax:
      return "cf_max";
    case ScalarOp::kMin:
      return "cf_min";
    case ScalarOp::kPow:
      return "cf_pow";
    case ScalarOp::kRemainder:
      return "cf_remainder";
    case ScalarOp::kFmod:
      return "cf_fmod";
    case ScalarOp::kAtan2:
      return "cf_atan2";
    case ScalarOp::kRoundToHalf:
      return "cf_round_to_half";
    case ScalarOp::kRoundToBF16:
      return "cf_round_to_bf16";
    default:
      return nullptr;
  }
}

const char* BinaryOperator(ScalarOp op) {
  switch (op) {
    case ScalarOp::kAdd:
      return "+";
    case ScalarOp::kSub:
      return "-";
    case ScalarOp::kMul:
      return "*";
    case ScalarOp::kDiv:
      return "/";
    case ScalarOp::kEq:
      return "==";
    case ScalarOp::kNe:
      return "!=";
    case ScalarOp::kLt:
      return "<";
    case ScalarOp::kLe:
      return "<=";
    case ScalarOp::kGt:
      return ">";
    case ScalarOp::kGe:
      return ">=";
    case ScalarOp::kAnd:
      return "&";
    case ScalarOp::kOr:
      return "|";
    case ScalarOp::kXor:
      return "^";
    default:
      return nullptr;
  }
}

std::string CastText(Type type, const std::string& text) {
  return "static_cast<" + TypeText(type) + ">(" + text + ")";
}

std::string UnsignedText(Type type) { return type == Type::kI64 ? "uint64_t" : "uint32_t"; }

int64_t OpCost(ScalarOp op) {
  switch (op) {
    case ScalarOp::kExp:
    case ScalarOp::kExpm1:
    case ScalarOp::kLog:
    case ScalarOp::kLog1p:
    case ScalarOp::kLog2:
    case ScalarOp::kTanh:
    case ScalarOp::kErf:
    case ScalarOp::kSigmoid:
      return 8;
    case ScalarOp::kSin:
    case ScalarOp::kCos:
    case ScalarOp::kPow:
    case ScalarOp::kAtan2:
    case ScalarOp::kFmod:
    case ScalarOp::kRemainder:
      return 24;
    case ScalarOp::kDiv:
    case ScalarOp::kSqrt:
    case ScalarOp::kRsqrt:
    case ScalarOp::kReciprocal:
      return 3;
    default:
      return 1;
  }
}

// One side (outer or inner) of every access of a stage, for Coalesce.
class Side {
 public:
  Side(Stage& stage, bool outer)
      : stage_(stage), outer_(outer), sizes_(outer ? stage.outer : stage.inner) {}

  void DropOnes() {
    for (size_t d = sizes_.size(); d-- > 0;) {
      if (sizes_[d] == 1) Erase(d);
    }
  }

  void Merge() {
    for (size_t d = sizes_.size(); d-- > 1;) {
      if (!CanMerge(d - 1)) continue;
      const int64_t size = sizes_[d - 1] * sizes_[d];
      Erase(d - 1);
      sizes_[d - 1] = size;
    }
  }

 private:
  template <typename F>
  void EachDim(F f) {
    for (Value& v : stage_.values) {
      for (DimIndex& dim : v.access.dims) f(outer_ ? dim.outer_coef : dim.inner_coef);
    }
    for (Store& s : stage_.stores) {
      for (DimIndex& dim : s.access.dims) f(outer_ ? dim.outer_coef : dim.inner_coef);
    }
  }

  bool IsIndex(const Value& v) const {
    return v.kind == (outer_ ? Value::Kind::kOuterIndex : Value::Kind::kInnerIndex);
  }

  // Whether dimensions d and d + 1 are walked as one by everything.
  bool CanMerge(size_t d) {
    for (const Value& v : stage_.values) {
      if (IsIndex(v) && (v.dim == static_cast<int>(d) || v.dim == static_cast<int>(d) + 1)) {
        return false;
      }
    }
    bool ok = true;
    EachDim([&](std::vector<int64_t>& c) {
      if (!c.empty() && c[d] != c[d + 1] * sizes_[d + 1]) ok = false;
    });
    return ok;
  }

  void Erase(size_t d) {
    EachDim([&](std::vector<int64_t>& c) {
      if (!c.empty()) c.erase(c.begin() + static_cast<int64_t>(d));
    });
    for (Value& v : stage_.values) {
      if (!IsIndex(v)) continue;
      if (v.dim == static_cast<int>(d)) {  // only for a dimension of size 1: its index is 0
        v.kind = Value::Kind::kConst;
        v.integer = 0;
        v.number = 0;
      } else if (v.dim > static_cast<int>(d)) {
        --v.dim;
      }
    }
    sizes_.erase(sizes_.begin() + static_cast<int64_t>(d));
  }

  Stage& stage_;
  bool outer_;
  std::vector<int64_t>& sizes_;
};

}  // namespace

std::string Lines::Text() const {
  std::string text;
  size_t depth = 0;
  for (size_t at = 0; at < text_.size();) {
    const size_t end = text_.find('\n', at);
    const std::string_view line = std::string_view(text_).substr(at, end - at);
    if (line.starts_with("}")) --depth;
    if (!line.starts_with("#")) text.append(2 * depth, ' ');
    text.append(line) += '\n';
    if (line.ends_with("{")) ++depth;
    at = end + 1;
  }
  return text;
}

std::string TypeText(Type type) {
  switch (type) {
    case Type::kF32:
      return "float";
    case Type::kF64:
      return "double";
    case Type::kI64:
      return "int64_t";
    case Type::kI32:
      return "int32_t";
    case Type::kBool:
      return "bool";
  }
  return "float";
}

std::string ConstText(const Value& value) {
  switch (value.type) {
    case Type::kBool:
      return value.integer != 0 ? "true" : "false";
    case Type::kI64:
      // The most negative number has no literal of its own.
      if (value.integer == INT64_MIN) return "(-INT64_C(9223372036854775807) - 1)";
      return "int64_t(" + std::to_string(value.integer) + ")";
    case Type::kI32:
      return "int32_t(" + std::to_string(value.integer) + ")";
    default:
      break;
  }
  const bool single = value.type == Type::kF32;
  // A double beyond float's range becomes an infinity, as a conversion in registers would make it.
  const double number =
      single ? static_cast<double>(static_cast<float>(value.number)) : value.number;
  if (std::isnan(number)) return single ? "CF_NAN_F32" : "CF_NAN_F64";
  if (std::isinf(number)) {
    return std::string(number < 0 ? "(-" : "(") + (single ? "CF_INF_F32)" : "CF_INF_F64)");
  }
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, single ? "%af" : "%a", number);
  return buffer;
}

std::string PointwiseText(const Stage& stage, int v, const std::vector<std::string>& operands) {
  const Value& value = stage.values[static_cast<size_t>(v)];
  CF_CHECK(operands.size() == value.operands.size()) << "one text per operand";
  const Type from = value.operands.empty()
                        ? value.type
                        : stage.values[static_cast<size_t>(value.operands[0])].type;
  switch (value.op) {
    case ScalarOp::kNeg:
      if (!IsInteger(from)) return "(-" + operands[0] + ")";
      return CastText(value.type, UnsignedText(from) + "(0) - " + CastText(from, operands[0]));
    case ScalarOp::kLogicalNot:
      return "(" + operands[0] + " == 0)";
    case ScalarOp::kBitwiseNot:
      return from == Type::kBool ? "(!" + operands[0] + ")" : "(~" + operands[0] + ")";
    case ScalarOp::kWhere:
      return "(" + operands[0] + " ? " + operands[1] + " : " + operands[2] + ")";
    case ScalarOp::kCast:
      if (value.type == from) return operands[0];
      return value.type == Type::kBool ? "(" + operands[0] + " != 0)"
                                       : CastText(value.type, operands[0]);
    default:
      break;
  }
  const bool wraps =
      value.op == ScalarOp::kAdd || value.op == ScalarOp::kSub || value.op == ScalarOp::kMul;
  if (IsInteger(value.type) &&
      wraps) {  // two's complement, where signed overflow would be undefined
    const std::string type = UnsignedText(value.type);
    return CastText(value.type, type + "(" + operands[0] + ") " + BinaryOperator(value.op) + " " +
                                    type + "(" + operands[1] + ")");
  }
  if (IsInteger(value.type) && value.op == ScalarOp::kDiv) return Call("cf_div", operands);
  if (const char* name = FunctionName(value.op); name != nullptr) return Call(name, operands);
  const char* symbol = BinaryOperator(value.op);
  CF_CHECK(symbol != nullptr) << "an operator without text";
  const std::string text = "(" + operands[0] + " " + symbol + " " + operands[1] + ")";
  return value.type == Type::kBool ? "bool" + text : text;
}

std::string LinearText(int64_t offset, const std::vector<int64_t>& coefficients,
                       const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < coefficients.size(); ++i) {
    if (coefficients[i] == 0 || names[i] == "0") continue;
    if (!text.empty()) text += " + ";
    text += coefficients[i] == 1 ? names[i] : names[i] + " * " + std::to_string(coefficients[i]);
  }
  if (offset != 0 || text.empty()) text += (text.empty() ? "" : " + ") + std::to_string(offset);
  return text;
}

LinearAccess Linearize(const Access& access) {
  LinearAccess result;
  for (size_t d = 0; d < access.dims.size(); ++d) {
    const DimIndex& dim = access.dims[d];
    const int64_t stride = access.strides[d];
    result.offset += dim.offset * stride;
    result.outer.resize(std::max(result.outer.size(), dim.outer_coef.size()));
    result.inner.resize(std::max(result.inner.size(), dim.inner_coef.size()));
    for (size_t i = 0; i < dim.outer_coef.size(); ++i)
      result.outer[i] += dim.outer_coef[i] * stride;
    for (size_t i = 0; i < dim.inner_coef.size(); ++i)
      result.inner[i] += dim.inner_coef[i] * stride;
  }
  return result;
}

std::vector<int> Closure(const Stage& stage, const std::vector<int>& roots,
                         const std::set<int>& known) {
  std::vector<bool> needed(stage.values.size());
  for (int root : roots) {
    if (known.count(root) == 0) needed[static_cast<size_t>(root)] = true;
  }
  std::vector<int> result;
  for (size_t v = stage.values.size(); v-- > 0;) {
    if (!needed[v]) continue;
    result.push_back(static_cast<int>(v));
    const Value& value = stage.values[v];
    for (int operand : value.operands) {
      if (known.count(operand) == 0) needed[static_cast<size_t>(operand)] = true;
    }
    if (value.out_of_bounds >= 0 && known.count(value.out_of_bounds) == 0) {
      needed[static_cast<size_t>(value.out_of_bounds)] = true;
    }
  }
  std::reverse(result.begin(), result.end());
  return result;
}

std::vector<int> LiveValues(const Stage& stage) {
  std::vector<int> roots;
  for (const Store& store : stage.stores) roots.push_back(store.value);
  return Closure(stage, roots, {});
}

Stage Coalesce(const Stage& stage) {
  Stage result = stage;
  for (bool outer : {true, false}) {
    Side side(result, outer);
    side.DropOnes();
    side.Merge();
  }
  return result;
}

int64_t RowCost(const Stage& stage) {
  int64_t elements = 1;
  for (int64_t size : stage.inner) elements *= size;
  int64_t per_element = 0, per_row = 0;
  for (int v : LiveValues(stage)) {
    const Value& value = stage.values[static_cast<size_t>(v)];
    int64_t cost = 1;
    if (value.kind == Value::Kind::kConst) cost = 0;
    if (value.kind == Value::Kind::kPointwise) cost = OpCost(value.op);
    // A reduce's or scan's own result is per row or per element, its work is per element.
    const bool element = value.space == Space::kElement || value.kind == Value::Kind::kReduce;
    (element ? per_element : per_row) += cost;
  }
  return std::max<int64_t>(1, per_row + per_element * elements);
}

}  // namespace cudaforge::rows
