#include "generators/rows/cpu/stage.h"

#include <algorithm>

#include "base/check.h"

namespace cudaforge::rows {
namespace {

const char* CpuStorageText(DType storage) {
  switch (storage) {
    case DType::kFloat32:
      return "float";
    case DType::kFloat64:
      return "double";
    case DType::kFloat16:
    case DType::kBFloat16:
      return "uint16_t";
    case DType::kInt64:
      return "int64_t";
    case DType::kInt32:
      return "int32_t";
    case DType::kBool:
      return "uint8_t";
  }
  return "float";
}

std::vector<std::string> Numbered(const char* prefix, size_t count) {
  std::vector<std::string> names;
  for (size_t d = 0; d < count; ++d) names.push_back(prefix + std::to_string(d));
  return names;
}

std::vector<int64_t> Concat(std::vector<int64_t> a, const std::vector<int64_t>& b, size_t na,
                            size_t nb) {
  a.resize(na);
  a.insert(a.end(), b.begin(), b.end());
  a.resize(na + nb);
  return a;
}

std::string FlatText(const std::vector<int64_t>& sizes, const char* prefix) {
  return LinearText(0, ContiguousStrides(sizes), Numbered(prefix, sizes.size()));
}

}  // namespace

CpuStage::CpuStage(const Stage& stage, std::string kernel)
    : stage_(Coalesce(stage)), kernel_(std::move(kernel)) {
  // Every mapping needs an innermost dimension.
  if (stage_.inner.empty()) {
    stage_.inner = {1};
    for (Value& v : stage_.values) {
      for (DimIndex& dim : v.access.dims) dim.inner_coef = {0};
    }
    for (Store& s : stage_.stores) {
      for (DimIndex& dim : s.access.dims) dim.inner_coef = {0};
    }
  }
  rows_ = NumElements(stage_.outer);
  row_length_ = NumElements(stage_.inner);
  live_.resize(stage_.values.size());
  for (int v : LiveValues(stage_)) live_[static_cast<size_t>(v)] = true;
  for (size_t v = 0; v < stage_.values.size(); ++v) {
    int sweep = 0;
    for (int operand : stage_.values[v].operands) {
      sweep = std::max(sweep, Sweep(operand) + (IsReduce(operand) ? 1 : 0));
    }
    sweeps_.push_back(sweep);
    if (stage_.values[v].space != Space::kElement) row_values_.insert(static_cast<int>(v));
    if (live_[v] && (IsElement(static_cast<int>(v)) || IsReduce(static_cast<int>(v)))) {
      sweep_count_ = std::max(sweep_count_, sweep + 1);
    }
  }
  auto use = [&](const BufferRef& buffer, DType storage, bool write) {
    auto found = std::find(buffers_.begin(), buffers_.end(), buffer);
    const size_t i = static_cast<size_t>(found - buffers_.begin());
    if (found == buffers_.end()) {
      buffers_.push_back(buffer);
      storages_.push_back(storage);
      written_.push_back(false);
      read_.push_back(false);
    }
    if (write) written_[i] = true;
    if (!write) read_[i] = true;
  };
  for (size_t v = 0; v < stage_.values.size(); ++v) {
    const Value& value = stage_.values[v];
    if (value.kind == Value::Kind::kLoad && live_[v]) use(value.buffer, value.storage, false);
  }
  for (const Store& store : stage_.stores) use(store.buffer, store.storage, true);
}

std::vector<int> CpuStage::ReducesOf(int s) const {
  std::vector<int> result;
  for (int v = 0; v < static_cast<int>(stage_.values.size()); ++v) {
    if (IsLive(v) && IsReduce(v) && Sweep(v) == s) result.push_back(v);
  }
  return result;
}

std::vector<size_t> CpuStage::ElementStoresOf(int s) const {
  std::vector<size_t> result;
  for (size_t i = 0; i < stage_.stores.size(); ++i) {
    const int v = stage_.stores[i].value;
    if (IsElement(v) && Sweep(v) == s) result.push_back(i);
  }
  return result;
}

std::vector<int> CpuStage::RowValuesOf(int s) const {
  std::vector<int> result;
  for (int v = 0; v < static_cast<int>(stage_.values.size()); ++v) {
    const Value& value = stage_.values[static_cast<size_t>(v)];
    if (IsLive(v) && !IsElement(v) && !IsReduce(v) && value.kind != Value::Kind::kConst &&
        Sweep(v) == s) {
      result.push_back(v);
    }
  }
  return result;
}

std::string CpuStage::OuterFlat() const { return FlatText(stage_.outer, "o"); }
std::string CpuStage::InnerFlat() const { return FlatText(stage_.inner, "i"); }

std::string CpuStage::IndexText(const Access& access) const {
  const LinearAccess linear = Linearize(access);
  std::vector<std::string> names = Numbered("o", stage_.outer.size());
  for (const std::string& name : Numbered("i", stage_.inner.size())) names.push_back(name);
  return LinearText(linear.offset,
                    Concat(linear.outer, linear.inner, stage_.outer.size(), stage_.inner.size()),
                    names);
}

std::string CpuStage::LoadText(const Value& value, const std::string& index) const {
  std::string text = "p" + std::to_string(BufferIndex(value.buffer)) + "[" + index + "]";
  switch (value.storage) {
    case DType::kFloat16:
      text = "cf_from_f16(" + text + ")";
      break;
    case DType::kBFloat16:
      text = "cf_from_bf16(" + text + ")";
      break;
    case DType::kBool:
      text = "(" + text + " != 0)";
      break;
    default:
      break;
  }
  if (ComputeType(value.storage) == value.type) return text;
  return "static_cast<" + TypeText(value.type) + ">(" + text + ")";
}

std::string CpuStage::BoundedLoadText(int v, const std::string& checked) const {
  const Value& value = this->value(v);
  std::vector<std::string> names = Numbered("o", stage_.outer.size());
  for (const std::string& name : Numbered("i", stage_.inner.size())) names.push_back(name);
  std::string index, condition;
  for (size_t d = 0; d < value.access.dims.size(); ++d) {
    const DimIndex& dim = value.access.dims[d];
    std::string position =
        "(" +
        LinearText(dim.offset,
                   Concat(dim.outer_coef, dim.inner_coef, stage_.outer.size(), stage_.inner.size()),
                   names) +
        ")";
    if (dim.bound >= 0) {
      // One unsigned comparison tests both bounds. 32 bits if possible, because g++ can vectorise
      // that division.
      const int64_t end = dim.bound * dim.div;
      const std::string cast = end < (int64_t{1} << 30) ? "uint32_t" : "uint64_t";
      condition +=
          (condition.empty() ? "(" : " & (") + cast + position + " < " + std::to_string(end) + "u)";
      if (dim.div != 1) {
        const std::string by = std::to_string(dim.div) + "u";
        condition += " & (" + cast + position + " % " + by + " == 0)";
        position = "int64_t(" + cast + position + " / " + by + ")";
      }
    }
    if (value.access.strides[d] == 0) continue;
    index +=
        (index.empty() ? "" : " + ") + position + " * " + std::to_string(value.access.strides[d]);
  }
  const std::string n = std::to_string(v), type = TypeText(value.type);
  return "const bool ok" + n + " = !" + checked + " || bool(" + condition + ");\n" +
         "const int64_t at" + n + " = (" + (index.empty() ? "0" : index) + ") & -int64_t(ok" + n +
         ");\n" + "const " + type + " " + Name(v) + " = cf_select(ok" + n + ", " +
         LoadText(value, "at" + n) + ", " + Name(value.out_of_bounds) + ");";
}

std::string CpuStage::StoreText(const Store& store, const std::string& value) const {
  const std::string place =
      "p" + std::to_string(BufferIndex(store.buffer)) + "[" + IndexText(store.access) + "]";
  switch (store.storage) {
    case DType::kFloat16:
      return place + " = cf_to_f16(" + value + ");";
    case DType::kBFloat16:
      return place + " = cf_to_bf16(" + value + ");";
    default:
      break;
  }
  return place + " = static_cast<" + CpuStorageText(store.storage) + ">(" + value + ");";
}

std::string CpuStage::DefinitionText(int v, const std::string& checked,
                                     const std::function<std::string(int)>& name) const {
  const Value& value = this->value(v);
  std::string text;
  switch (value.kind) {
    case Value::Kind::kLoad:
      if (!value.access.IsLinear()) return BoundedLoadText(v, checked);
      text = LoadText(value, IndexText(value.access));
      break;
    case Value::Kind::kInnerIndex:
      text = value.dim < 0 ? InnerFlat() : "i" + std::to_string(value.dim);
      break;
    case Value::Kind::kOuterIndex:
      text = value.dim < 0 ? OuterFlat() : "o" + std::to_string(value.dim);
      break;
    case Value::Kind::kPointwise: {
      std::vector<std::string> operands;
      for (int operand : value.operands) operands.push_back(name(operand));
      text = PointwiseText(stage_, v, operands);
      break;
    }
    default:
      CF_CHECK(false) << "value " << v << " is not defined in place";
  }
  return "const " + TypeText(value.type) + " " + Name(v) + " = " + text + ";";
}

void CpuStage::AddPrologue(Lines* lines) const {
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const std::string type = Cat(written_[i] ? "" : "const ", CpuStorageText(storages_[i]), "*");
    lines->Add(type, written_[i] && read_[i] ? " " : " __restrict ", "const p", i,
               " = static_cast<", type, ">(buffers[", i, "]);");
  }
  for (size_t v = 0; v < stage_.values.size(); ++v) {
    const Value& value = stage_.values[v];
    if (!live_[v] || value.kind != Value::Kind::kConst) continue;
    lines->Add("constexpr ", TypeText(value.type), " ", Name(static_cast<int>(v)), " = ",
               ConstText(value), ";");
  }
}

void CpuStage::AddOuterIndices(Lines* lines, const std::string& flat, size_t count) const {
  int64_t stride = 1;
  for (size_t d = count; d-- > 0;) {
    const int64_t size = std::max<int64_t>(1, stage_.outer[d]);
    std::string index = stride == 1 ? flat : Cat(flat, " / ", stride);
    if (d > 0) index = Cat("(", index, ") % ", size);
    lines->Add("const int64_t o", d, " = ", index, ";");
    stride *= size;
  }
}

size_t CpuStage::BufferIndex(const BufferRef& buffer) const {
  return static_cast<size_t>(std::find(buffers_.begin(), buffers_.end(), buffer) -
                             buffers_.begin());
}

Launch CpuStage::MakeLaunch() const {
  Launch launch;
  launch.kernel = kernel_;
  for (const BufferRef& buffer : buffers_) launch.args.push_back(ArgOf(buffer));
  return launch;
}

Type TileType(const Stage& stage, const Value& value) {
  const Type operand = stage.values[static_cast<size_t>(value.operands[0])].type;
  if (value.kind == Value::Kind::kScan) return value.type;
  switch (value.reduce) {
    case ReduceOp::kSum:
    case ReduceOp::kProd:
      return value.type;
    case ReduceOp::kAny:
    case ReduceOp::kAll:
      return Type::kBool;
    default:
      return operand;
  }
}

std::string AccumulatorText(const Stage& stage, const Value& reduce) {
  const std::string type = "<" + TypeText(TileType(stage, reduce)) + ">";
  switch (reduce.reduce) {
    case ReduceOp::kSum:
      return "CfSum" + type;
    case ReduceOp::kProd:
      return "CfProd" + type;
    case ReduceOp::kMax:
      return "CfMax" + type;
    case ReduceOp::kMin:
      return "CfMin" + type;
    case ReduceOp::kArgMax:
      return "CfArgMax" + type;
    case ReduceOp::kArgMin:
      return "CfArgMin" + type;
    case ReduceOp::kAny:
      return "CfAny";
    case ReduceOp::kAll:
      return "CfAll";
  }
  return "";
}

}  // namespace cudaforge::rows
