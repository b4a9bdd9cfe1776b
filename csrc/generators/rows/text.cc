#include "generators/rows/text.h"

#include <algorithm>
#include <cmath>
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

std::string CastText(Type type, const std::string& text) {
  return "static_cast<" + TypeText(type) + ">(" + text + ")";
}

std::string UnsignedText(Type type) { return type == Type::kI64 ? "uint64_t" : "uint32_t"; }

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
      // The most negative number has no literal.
      if (value.integer == INT64_MIN) return "(-INT64_C(9223372036854775807) - 1)";
      return "int64_t(" + std::to_string(value.integer) + ")";
    case Type::kI32:
      return "int32_t(" + std::to_string(value.integer) + ")";
    default:
      break;
  }
  const bool single = value.type == Type::kF32;
  // A double beyond float's range becomes infinite, as in a conversion.
  const double number =
      single ? static_cast<double>(static_cast<float>(value.number)) : value.number;
  if (std::isnan(number)) return single ? "CF_NAN_F32" : "CF_NAN_F64";
  if (std::isinf(number)) {
    return std::string(number < 0 ? "(-" : "(") + (single ? "CF_INF_F32)" : "CF_INF_F64)");
  }
  return HexFloat(number) + (single ? "f" : "");
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
  const ScalarFacts& facts = ScalarFactsOf(value.op);
  const bool wraps =
      value.op == ScalarOp::kAdd || value.op == ScalarOp::kSub || value.op == ScalarOp::kMul;
  // Two's complement, because signed overflow would be undefined.
  if (IsInteger(value.type) && wraps) {
    const std::string type = UnsignedText(value.type);
    return CastText(value.type, type + "(" + operands[0] + ") " + facts.text + " " + type + "(" +
                                    operands[1] + ")");
  }
  if (IsInteger(value.type) && value.op == ScalarOp::kDiv) return Call("cf_div", operands);
  CF_CHECK(facts.text != nullptr) << "an operation without text";
  if (std::string_view(facts.text).starts_with("cf_")) return Call(facts.text, operands);
  const std::string text = "(" + operands[0] + " " + facts.text + " " + operands[1] + ")";
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

}  // namespace cudaforge::rows
