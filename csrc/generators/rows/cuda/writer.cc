#include "generators/rows/cuda/writer.h"

#include "generators/rows/text.h"

namespace cudaforge::rows {

std::string StorageText(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float";
    case DType::kFloat16:
      return "CfHalf";
    case DType::kBFloat16:
      return "CfBFloat16";
    case DType::kFloat64:
      return "double";
    case DType::kInt64:
      return "int64_t";
    case DType::kInt32:
      return "int32_t";
    case DType::kBool:
      return "CfBool";
  }
  return "float";
}

std::string BufferText(const BufferRef& buffer) {
  const char* kind = buffer.kind == BufferKind::kInput    ? "in"
                     : buffer.kind == BufferKind::kOutput ? "out"
                                                          : "tmp";
  return Cat(kind, buffer.index);
}

std::string ReduceOpText(const Stage& stage, int v) {
  const Value& value = stage.values[static_cast<size_t>(v)];
  const Type operand = stage.values[static_cast<size_t>(value.operands[0])].type;
  switch (value.reduce) {
    case ReduceOp::kSum:
      return Cat("CfSum<", TypeText(value.type), ">");
    case ReduceOp::kProd:
      return Cat("CfProd<", TypeText(value.type), ">");
    case ReduceOp::kMax:
      return Cat("CfMax<", TypeText(operand), ">");
    case ReduceOp::kMin:
      return Cat("CfMin<", TypeText(operand), ">");
    case ReduceOp::kArgMax:
      return Cat("CfArgMax<", TypeText(operand), ">");
    case ReduceOp::kArgMin:
      return Cat("CfArgMin<", TypeText(operand), ">");
    case ReduceOp::kAny:
      return "CfAny<bool>";
    case ReduceOp::kAll:
      return "CfAll<bool>";
  }
  return "";
}

std::string ScanOpText(const Stage& stage, int v) {
  const Value& value = stage.values[static_cast<size_t>(v)];
  return Cat(value.scan == ScanOp::kSum ? "CfSum<" : "CfProd<", TypeText(value.type), ">");
}

std::vector<std::string> OuterNames(const CudaPlan& plan, bool last_plus_k) {
  std::vector<std::string> names;
  for (size_t d = 0; d < plan.stage.outer.size(); ++d) names.push_back(Cat("o", d));
  if (last_plus_k) names.back() = Cat("(", names.back(), " + k)");
  return names;
}

std::vector<std::string> InnerNames(const CudaPlan& plan, const std::string& prefix) {
  std::vector<std::string> names;
  for (size_t d = 0; d < plan.stage.inner.size(); ++d) names.push_back(Cat(prefix, d));
  return names;
}

BoundedText BoundedAccessText(const Access& access, const std::vector<std::string>& outer,
                              const std::vector<std::string>& inner) {
  BoundedText result;
  for (size_t d = 0; d < access.dims.size(); ++d) {
    const DimIndex& dim = access.dims[d];
    std::vector<int64_t> coefficients;
    std::vector<std::string> names;
    for (size_t i = 0; i < outer.size(); ++i) {
      coefficients.push_back(Coefficient(dim.outer_coef, i));
      names.push_back(outer[i]);
    }
    for (size_t i = 0; i < inner.size(); ++i) {
      coefficients.push_back(Coefficient(dim.inner_coef, i));
      names.push_back(inner[i]);
    }
    const std::string n = "(" + LinearText(dim.offset, coefficients, names) + ")";
    const std::string index = dim.div == 1 ? n : Cat(n, " / ", dim.div);
    if (dim.bound >= 0) {
      if (!result.condition.empty()) result.condition += " && ";
      result.condition += Cat(n, " >= 0 && ");
      if (dim.div != 1) result.condition += Cat(n, " % ", dim.div, " == 0 && ");
      result.condition += Cat(index, " < ", dim.bound);
    }
    if (access.strides[d] == 0) continue;
    if (!result.offset.empty()) result.offset += " + ";
    result.offset += access.strides[d] == 1 ? index : Cat(index, " * ", access.strides[d]);
  }
  if (result.condition.empty()) result.condition = "true";
  if (result.offset.empty()) result.offset = "0";
  return result;
}

void AddCoordinates(CudaLines* lines, const std::string& prefix, const std::string& flat,
                    const std::vector<int64_t>& sizes) {
  int64_t below = 1;
  std::vector<std::string> text(sizes.size());
  for (size_t d = sizes.size(); d-- > 0;) {
    text[d] = below == 1 ? flat : Cat(flat, " / ", below);
    if (d > 0) text[d] += Cat(" % ", sizes[d]);
    below *= sizes[d];
  }
  for (size_t d = 0; d < sizes.size(); ++d) lines->Add("const I ", prefix, d, " = ", text[d], ";");
}

}  // namespace cudaforge::rows
