#include "generators/rows/row_program.h"

#include <algorithm>

#include "base/text.h"

namespace cudaforge::rows {
namespace {

constexpr const char* kTypeNames[] = {"f32", "f64", "i64", "i32", "bool"};
constexpr const char* kSpaceNames[] = {"const", "row", "element"};
constexpr const char* kReduceNames[] = {"sum",    "prod",   "max", "min",
                                        "argmax", "argmin", "any", "all"};
constexpr const char* kScanNames[] = {"cumsum", "cumprod"};
constexpr const char* kBufferNames[] = {"in", "out", "scratch"};

bool HasNonZero(const std::vector<int64_t>& values) {
  return std::any_of(values.begin(), values.end(), [](int64_t v) { return v != 0; });
}

Space SpaceOfAccess(const Access& access) {
  Space space = Space::kConst;
  for (const DimIndex& dim : access.dims) {
    if (HasNonZero(dim.inner_coef)) return Space::kElement;
    if (HasNonZero(dim.outer_coef)) space = Space::kRow;
  }
  return space;
}

std::string Join(const std::vector<int64_t>& values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(values[i]);
  }
  return text + "]";
}

std::string IndexText(const DimIndex& dim) {
  std::string text;
  auto add = [&](int64_t coef, const std::string& name) {
    if (coef == 0) return;
    if (!text.empty()) text += "+";
    text += (coef == 1 ? "" : std::to_string(coef) + "*") + name;
  };
  for (size_t i = 0; i < dim.outer_coef.size(); ++i)
    add(dim.outer_coef[i], "o" + std::to_string(i));
  for (size_t i = 0; i < dim.inner_coef.size(); ++i)
    add(dim.inner_coef[i], "i" + std::to_string(i));
  if (dim.offset != 0 || text.empty()) {
    if (!text.empty() && dim.offset > 0) text += "+";
    text += std::to_string(dim.offset);
  }
  if (dim.div != 1) text = "(" + text + ")/" + std::to_string(dim.div);
  if (dim.bound >= 0) text += "<" + std::to_string(dim.bound);
  return text;
}

std::string AccessText(const BufferRef& buffer, DType storage, const Access& access) {
  std::string text = std::string(kBufferNames[static_cast<int>(buffer.kind)]) +
                     std::to_string(buffer.index) + ":" + std::string(DTypeName(storage)) + "[";
  for (size_t d = 0; d < access.dims.size(); ++d) {
    if (d > 0) text += "; ";
    text += IndexText(access.dims[d]);
    if (access.strides[d] != 1) text += " *" + std::to_string(access.strides[d]);
  }
  return text + "]";
}

std::string ValueText(const Value& value) {
  auto ref = [](int v) { return "%" + std::to_string(v); };
  std::string text;
  switch (value.kind) {
    case Value::Kind::kConst:
      return "const " + (IsFloatType(value.type) ? Significant(value.number, 17)
                                                 : std::to_string(value.integer));
    case Value::Kind::kLoad:
      text = "load " + AccessText(value.buffer, value.storage, value.access);
      if (value.out_of_bounds >= 0) text += " else " + ref(value.out_of_bounds);
      return text;
    case Value::Kind::kInnerIndex:
      return "inner_index " + std::to_string(value.dim);
    case Value::Kind::kOuterIndex:
      return "outer_index " + std::to_string(value.dim);
    case Value::Kind::kPointwise:
      text = ScalarFactsOf(value.op).name;
      break;
    case Value::Kind::kReduce:
      text = std::string("reduce ") + kReduceNames[static_cast<int>(value.reduce)];
      break;
    case Value::Kind::kProduct:
      return "product";
    case Value::Kind::kScan:
      text = std::string("scan ") + kScanNames[static_cast<int>(value.scan)];
      break;
  }
  for (int operand : value.operands) text += " " + ref(operand);
  return text;
}

// Checks one stage; errors name the place.
class StageChecker {
 public:
  StageChecker(const Stage& stage, const Program& program, const OpSignature& signature,
               std::string place)
      : stage_(stage), program_(program), signature_(signature), place_(std::move(place)) {}

  Status Check() {
    for (int64_t size : stage_.outer) {
      if (size < 1) return Error("an outer size is not positive");
    }
    for (int64_t size : stage_.inner) {
      if (size < 1) return Error("an inner size is not positive");
    }
    for (size_t v = 0; v < stage_.values.size(); ++v) {
      CF_RETURN_IF_ERROR(CheckValue(stage_.values[v], v));
    }
    if (stage_.stores.empty() && stage_.run_sums.empty()) return Error("no store");
    CF_RETURN_IF_ERROR(CheckRuns());
    for (size_t s = 0; s < stage_.stores.size(); ++s) {
      const Store& store = stage_.stores[s];
      const std::string name = "store " + std::to_string(s);
      if (store.value < 0 || static_cast<size_t>(store.value) >= stage_.values.size()) {
        return Error(name + ": no such value");
      }
      if (store.buffer.kind == BufferKind::kInput) return Error(name + ": writes an input");
      CF_RETURN_IF_ERROR(CheckAccess(store.buffer, store.access, name));
      const Value& value = stage_.values[static_cast<size_t>(store.value)];
      if (value.type != ComputeType(store.storage)) return Error(name + ": type mismatch");
      const bool element = SpaceOfAccess(store.access) == Space::kElement;
      if (element != (value.space == Space::kElement) && stage_.row_length() > 1) {
        return Error(name + ": the value's space is not the access's");
      }
    }
    return Status::Ok();
  }

 private:
  Status Error(const std::string& what) const { return Status::InvalidArgument(place_ + what); }

  Status CheckAccess(const BufferRef& buffer, const Access& access, const std::string& name) const {
    const size_t count = buffer.kind == BufferKind::kInput    ? signature_.inputs.size()
                         : buffer.kind == BufferKind::kOutput ? signature_.outputs.size()
                                                              : program_.scratch_bytes.size();
    if (buffer.index < 0 || static_cast<size_t>(buffer.index) >= count) {
      return Error(name + ": no such buffer");
    }
    if (access.dims.size() != access.strides.size()) return Error(name + ": strides do not match");
    for (const DimIndex& dim : access.dims) {
      if (dim.outer_coef.size() != stage_.outer.size() ||
          dim.inner_coef.size() != stage_.inner.size()) {
        return Error(name + ": coefficients do not match the loops");
      }
      if (dim.div < 1 || (dim.bound < 0 && dim.div != 1)) return Error(name + ": bad divisor");
    }
    return Status::Ok();
  }

  Status CheckRuns() const {
    if (stage_.run_sums.empty()) {
      return stage_.rows_per_run == 1 ? Status::Ok() : Error("runs without sums over them");
    }
    if (stage_.rows_per_run < 1) return Error("a run has no rows");
    for (const RunSum& sum : stage_.run_sums) {
      if (sum.value < 0 || static_cast<size_t>(sum.value) >= stage_.values.size()) {
        return Error("run sum: no such value");
      }
      const Value& value = stage_.values[static_cast<size_t>(sum.value)];
      if (value.space != Space::kElement || value.type == Type::kBool) {
        return Error("run sum: not of numbers of elements");
      }
      if (sum.scratch < 0 || static_cast<size_t>(sum.scratch) >= program_.scratch_bytes.size()) {
        return Error("run sum: no such buffer");
      }
      const int64_t elements = stage_.runs() * stage_.row_length();
      if (program_.scratch_bytes[static_cast<size_t>(sum.scratch)] <
          elements * DTypeSize(StorageOf(value.type))) {
        return Error("run sum: the buffer is too small");
      }
    }
    return Status::Ok();
  }

  Status CheckValue(const Value& value, size_t v) const {
    const std::string name = "value " + std::to_string(v);
    Space space = Space::kConst;
    for (int operand : value.operands) {
      if (operand < 0 || static_cast<size_t>(operand) >= v)
        return Error(name + ": not in SSA order");
      space = std::max(space, stage_.values[static_cast<size_t>(operand)].space);
    }
    auto operand_type = [&](size_t i) {
      return stage_.values[static_cast<size_t>(value.operands[i])].type;
    };
    switch (value.kind) {
      case Value::Kind::kConst:
        break;
      case Value::Kind::kLoad: {
        CF_RETURN_IF_ERROR(CheckAccess(value.buffer, value.access, name));
        if (value.type != ComputeType(value.storage)) return Error(name + ": type mismatch");
        if (value.out_of_bounds >= 0) {
          if (static_cast<size_t>(value.out_of_bounds) >= v)
            return Error(name + ": not in SSA order");
          const Value& other = stage_.values[static_cast<size_t>(value.out_of_bounds)];
          if (other.kind != Value::Kind::kConst || other.type != value.type) {
            return Error(name + ": the value outside is not a constant of its type");
          }
        } else if (!value.access.IsLinear()) {
          return Error(name + ": bounds without a value outside");
        }
        space = SpaceOfAccess(value.access);
        break;
      }
      case Value::Kind::kInnerIndex:
      case Value::Kind::kOuterIndex: {
        const bool inner = value.kind == Value::Kind::kInnerIndex;
        const size_t rank = inner ? stage_.inner.size() : stage_.outer.size();
        if (value.dim < -1 || value.dim >= static_cast<int>(rank)) {
          return Error(name + ": no such dimension");
        }
        if (value.type != Type::kI64) return Error(name + ": an index is i64");
        space = inner ? Space::kElement : Space::kRow;
        break;
      }
      case Value::Kind::kPointwise: {
        if (value.operands.size() != ScalarFactsOf(value.op).operands)
          return Error(name + ": wrong number of operands");
        if (value.op == ScalarOp::kCast) break;
        if (value.op == ScalarOp::kWhere) {
          if (operand_type(0) != Type::kBool || operand_type(1) != value.type ||
              operand_type(2) != value.type) {
            return Error(name + ": type mismatch");
          }
          break;
        }
        if (value.operands.size() == 2 && operand_type(0) != operand_type(1))
          return Error(name + ": type mismatch");
        if (value.type != (ScalarFactsOf(value.op).gives_bool ? Type::kBool : operand_type(0))) {
          return Error(name + ": type mismatch");
        }
        break;
      }
      case Value::Kind::kReduce: {
        if (value.operands.size() != 1) return Error(name + ": wrong number of operands");
        const bool index = value.reduce == ReduceOp::kArgMax || value.reduce == ReduceOp::kArgMin;
        if (value.type != (index ? Type::kI64 : operand_type(0))) {
          return Error(name + ": type mismatch");
        }
        space = Space::kRow;
        break;
      }
      case Value::Kind::kScan:
        if (value.operands.size() != 1) return Error(name + ": wrong number of operands");
        if (value.type != operand_type(0)) return Error(name + ": type mismatch");
        space = Space::kElement;
        break;
      case Value::Kind::kProduct:
        if (value.type != Type::kF32) return Error(name + ": a product is f32");
        space = Space::kElement;
        break;
    }
    if (space != value.space) return Error(name + ": wrong space");
    return Status::Ok();
  }

  const Stage& stage_;
  const Program& program_;
  const OpSignature& signature_;
  const std::string place_;
};

}  // namespace

bool IsFloatType(Type type) { return type == Type::kF32 || type == Type::kF64; }

int64_t NumElements(const std::vector<int64_t>& sizes) {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  return count;
}

Type ComputeType(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return Type::kF64;
    case DType::kInt64:
      return Type::kI64;
    case DType::kInt32:
      return Type::kI32;
    case DType::kBool:
      return Type::kBool;
    default:
      return Type::kF32;
  }
}

DType StorageOf(Type type) {
  switch (type) {
    case Type::kF64:
      return DType::kFloat64;
    case Type::kI64:
      return DType::kInt64;
    case Type::kI32:
      return DType::kInt32;
    case Type::kBool:
      return DType::kBool;
    default:
      return DType::kFloat32;
  }
}

bool Access::IsLinear() const {
  return std::all_of(dims.begin(), dims.end(), [](const DimIndex& dim) { return dim.bound < 0; });
}

int64_t Stage::rows() const { return NumElements(outer); }
int64_t Stage::runs() const { return (rows() + rows_per_run - 1) / rows_per_run; }
int64_t Stage::row_length() const { return NumElements(inner); }

bool Stage::Has(Value::Kind kind) const {
  return std::any_of(values.begin(), values.end(),
                     [&](const Value& value) { return value.kind == kind; });
}

std::vector<int> Stage::SweepOfValues() const {
  std::vector<int> sweeps(values.size(), 0);
  for (size_t v = 0; v < values.size(); ++v) {
    for (int operand : values[v].operands) {
      const Value& from = values[static_cast<size_t>(operand)];
      const bool sweeps_row = from.kind == Value::Kind::kReduce || from.kind == Value::Kind::kScan;
      sweeps[v] = std::max(sweeps[v], sweeps[static_cast<size_t>(operand)] + (sweeps_row ? 1 : 0));
    }
  }
  return sweeps;
}

Status Program::Validate(const OpSignature& signature) const {
  if (stages.empty()) return Status::InvalidArgument("a program without stages");
  for (int64_t bytes : scratch_bytes) {
    if (bytes < 1) return Status::InvalidArgument("an empty scratch buffer");
  }
  for (size_t s = 0; s < stages.size(); ++s) {
    CF_RETURN_IF_ERROR(
        StageChecker(stages[s], *this, signature, "stage " + std::to_string(s) + ", ").Check());
  }
  return Status::Ok();
}

std::string Program::ToString() const {
  std::string text;
  if (!scratch_bytes.empty()) text += "scratch " + Join(scratch_bytes) + "\n";
  for (size_t s = 0; s < stages.size(); ++s) {
    const Stage& stage = stages[s];
    text += Cat("stage ", s, " outer ", Join(stage.outer), " inner ", Join(stage.inner), "\n");
    for (size_t v = 0; v < stage.values.size(); ++v) {
      const Value& value = stage.values[v];
      text += Cat("  %", v, " ", kTypeNames[static_cast<int>(value.type)], " ",
                  kSpaceNames[static_cast<int>(value.space)], " = ", ValueText(value), "\n");
    }
    for (const Store& store : stage.stores) {
      text += Cat("  store %", store.value, " -> ",
                  AccessText(store.buffer, store.storage, store.access), "\n");
    }
    for (const RunSum& sum : stage.run_sums) {
      text += Cat("  sum %", sum.value, " over ", stage.rows_per_run, " rows -> scratch",
                  sum.scratch, "\n");
    }
  }
  return text;
}

}  // namespace cudaforge::rows
