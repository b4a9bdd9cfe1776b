#include "generators/rows/lower/emitter.h"

#include <algorithm>

namespace cudaforge::rows {
namespace {

bool AnyNonZero(const std::vector<int64_t>& values) {
  return std::any_of(values.begin(), values.end(), [](int64_t v) { return v != 0; });
}

Space SpaceOf(const Access& access) {
  Space space = Space::kConst;
  for (const DimIndex& dim : access.dims) {
    if (AnyNonZero(dim.inner_coef)) return Space::kElement;
    if (AnyNonZero(dim.outer_coef)) space = Space::kRow;
  }
  return space;
}

std::string ValueKey(const Value& value) {
  std::string key;
  for (int64_t field :
       {static_cast<int64_t>(value.kind), static_cast<int64_t>(value.type), value.integer,
        static_cast<int64_t>(value.buffer.kind), static_cast<int64_t>(value.buffer.index),
        static_cast<int64_t>(value.storage), static_cast<int64_t>(value.out_of_bounds),
        static_cast<int64_t>(value.dim), static_cast<int64_t>(value.op),
        static_cast<int64_t>(value.reduce), static_cast<int64_t>(value.scan)}) {
    key += std::to_string(field) + ",";
  }
  key.append(reinterpret_cast<const char*>(&value.number), sizeof(value.number));
  for (int operand : value.operands) key += " " + std::to_string(operand);
  key += IndexKey(value.access.dims);
  for (int64_t stride : value.access.strides) key += " " + std::to_string(stride);
  return key;
}

// An access to a tensor with element strides; one DimIndex if nothing is bounded.
Access MakeAccess(const Index& index, const std::vector<int64_t>& strides, const Loops& loops) {
  Access access;
  DimIndex linear = ZeroIndex(loops);
  for (size_t d = 0; d < index.size(); ++d) {
    if (IsPlain(index[d])) AddScaled(linear, index[d], strides[d]);
  }
  access.dims.push_back(std::move(linear));
  access.strides.push_back(1);
  for (size_t d = 0; d < index.size(); ++d) {
    if (IsPlain(index[d])) continue;
    access.dims.push_back(index[d]);
    access.strides.push_back(strides[d]);
  }
  return access;
}

}  // namespace

void AssignSpaces(Stage& stage) {
  for (Value& value : stage.values) {
    Space space = Space::kConst;
    for (int operand : value.operands) {
      space = std::max(space, stage.values[static_cast<size_t>(operand)].space);
    }
    if (value.kind == Value::Kind::kLoad) space = SpaceOf(value.access);
    if (value.kind == Value::Kind::kReduce) space = Space::kRow;
    if (value.kind == Value::Kind::kScan || value.kind == Value::Kind::kProduct)
      space = Space::kElement;
    if (value.kind == Value::Kind::kInnerIndex) space = Space::kElement;
    if (value.kind == Value::Kind::kOuterIndex) space = Space::kRow;
    value.space = space;
  }
  for (Store& store : stage.stores) {
    const Value stored = stage.values[static_cast<size_t>(store.value)];
    if (SpaceOf(store.access) != Space::kElement || stored.space == Space::kElement) continue;
    // A selection that always takes the value, to give it an element operand.
    Value index;
    index.kind = Value::Kind::kInnerIndex;
    index.type = Type::kI64;
    index.dim = 0;
    index.space = Space::kElement;
    Value zero;
    zero.type = Type::kI64;
    Value inside;
    inside.kind = Value::Kind::kPointwise;
    inside.type = Type::kBool;
    inside.space = Space::kElement;
    inside.op = ScalarOp::kGe;
    Value lifted;
    lifted.kind = Value::Kind::kPointwise;
    lifted.type = stored.type;
    lifted.space = Space::kElement;
    lifted.op = ScalarOp::kWhere;
    const int at = static_cast<int>(stage.values.size());
    inside.operands = {at, at + 1};
    lifted.operands = {at + 2, store.value, store.value};
    stage.values.insert(stage.values.end(), {index, zero, inside, lifted});
    store.value = at + 3;
  }
}

StageEmitter::StageEmitter(const Graph& graph, const std::vector<TensorSpec>& inputs,
                           const Loops& loops, const std::vector<int>& scratch,
                           const std::map<int, Index>& anchors, const std::map<int, Index>& maps)
    : graph_(graph),
      inputs_(inputs),
      loops_(loops),
      scratch_(scratch),
      anchors_(anchors),
      maps_(maps) {
  stage_.outer = loops.outer;
  stage_.inner = loops.inner;
}

int StageEmitter::Append(Value value) {
  const auto [entry, fresh] =
      values_.emplace(ValueKey(value), static_cast<int>(stage_.values.size()));
  if (fresh) stage_.values.push_back(std::move(value));
  return entry->second;
}

int StageEmitter::Constant(Type type, double number, int64_t integer) {
  Value value;
  value.type = type;
  value.number = number;
  value.integer = integer;
  return Append(std::move(value));
}

int StageEmitter::Pointwise(ScalarOp op, Type type, std::vector<int> operands) {
  Value value;
  value.kind = Value::Kind::kPointwise;
  value.type = type;
  value.op = op;
  value.operands = std::move(operands);
  return Append(std::move(value));
}

int StageEmitter::Load(const BufferRef& buffer, DType storage, const Index& index,
                       const std::vector<int64_t>& strides, int outside) {
  Value value;
  value.kind = Value::Kind::kLoad;
  value.type = ComputeType(storage);
  value.buffer = buffer;
  value.storage = storage;
  value.access = MakeAccess(index, strides, loops_);
  if (!value.access.IsLinear()) {
    value.out_of_bounds = outside >= 0 ? outside : Constant(value.type, 0, 0);
  }
  return Append(std::move(value));
}

int StageEmitter::Numerator(const DimIndex& index) {
  int sum = -1;
  auto add = [&](Value::Kind kind, size_t dim, int64_t coef) {
    if (coef == 0) return;
    Value loop;
    loop.kind = kind;
    loop.type = Type::kI64;
    loop.dim = static_cast<int>(dim);
    int term = Append(std::move(loop));
    if (coef != 1) term = Pointwise(ScalarOp::kMul, Type::kI64, {term, Integer(coef)});
    sum = sum < 0 ? term : Pointwise(ScalarOp::kAdd, Type::kI64, {sum, term});
  };
  for (size_t i = 0; i < index.outer_coef.size(); ++i) {
    add(Value::Kind::kOuterIndex, i, index.outer_coef[i]);
  }
  for (size_t i = 0; i < index.inner_coef.size(); ++i) {
    add(Value::Kind::kInnerIndex, i, index.inner_coef[i]);
  }
  if (sum < 0) return Integer(index.offset);
  if (index.offset == 0) return sum;
  return Pointwise(ScalarOp::kAdd, Type::kI64, {sum, Integer(index.offset)});
}

int StageEmitter::IndexValue(const DimIndex& index) {
  const int numerator = Numerator(index);
  if (index.div == 1) return numerator;
  return Pointwise(ScalarOp::kDiv, Type::kI64, {numerator, Integer(index.div)});
}

int StageEmitter::InBounds(const Index& index) {
  int all = -1;
  auto require = [&](int condition) {
    all = all < 0 ? condition : Pointwise(ScalarOp::kAnd, Type::kBool, {all, condition});
  };
  for (const DimIndex& dim : index) {
    if (IsPlain(dim)) continue;
    const int numerator = Numerator(dim);
    require(Pointwise(ScalarOp::kGe, Type::kBool, {numerator, Integer(0)}));
    require(Pointwise(ScalarOp::kLt, Type::kBool, {numerator, Integer(dim.bound * dim.div)}));
    if (dim.div != 1) {
      const int rest = Pointwise(ScalarOp::kRemainder, Type::kI64, {numerator, Integer(dim.div)});
      require(Pointwise(ScalarOp::kEq, Type::kBool, {rest, Integer(0)}));
    }
  }
  return all;
}

bool StageEmitter::IsLeaf(int id) const {
  return graph_.node(id).kind == GraphNode::Kind::kInput || scratch_[static_cast<size_t>(id)] >= 0;
}

Result<int> StageEmitter::EvaluateLeaf(int id, const Index& index, int outside) {
  const GraphNode& node = graph_.node(id);
  const int scratch = scratch_[static_cast<size_t>(id)];
  if (scratch >= 0) {
    return Load({BufferKind::kScratch, scratch}, StorageOf(node.type), index,
                ContiguousStrides(node.sizes), outside);
  }
  const int input = static_cast<int>(node.integer);
  return Load({BufferKind::kInput, input}, node.storage, index,
              inputs_[static_cast<size_t>(input)].strides, outside);
}

Result<int> StageEmitter::EvaluateView(int id, const Index& index) {
  const GraphNode& node = graph_.node(id);
  const int operand = node.operands[0];
  const auto from = OperandIndex(node, graph_.sizes(operand), index, loops_);
  if (!from) return Status::Unsupported("an index map that does not compose");
  if (!node.HasBounds()) return Evaluate(operand, *from);
  const GraphNode& fill = graph_.node(node.operands[1]);
  const int outside = Constant(fill.type, fill.number, fill.integer);
  if (IsLeaf(operand)) return EvaluateLeaf(operand, *from, outside);
  CF_ASSIGN_OR_RETURN(const int inside, Evaluate(operand, *from));
  const int condition = InBounds(*from);
  return condition < 0 ? inside
                       : Pointwise(ScalarOp::kWhere, node.type, {condition, inside, outside});
}

Result<int> StageEmitter::Evaluate(int id, const Index& index) {
  const std::string key = std::to_string(id) + "@" + IndexKey(index);
  const auto found = memo_.find(key);
  if (found != memo_.end()) return found->second;
  const GraphNode& node = graph_.node(id);
  Result<int> result = 0;
  if (IsLeaf(id)) {
    result = EvaluateLeaf(id, index, -1);
  } else if (node.kind == GraphNode::Kind::kConst) {
    result = Constant(node.type, node.number, node.integer);
  } else if (node.kind == GraphNode::Kind::kIota) {
    result = IndexValue(index[static_cast<size_t>(node.dim)]);
  } else if (node.kind == GraphNode::Kind::kPointwise) {
    std::vector<int> operands;
    for (int operand : node.operands) {
      CF_ASSIGN_OR_RETURN(const int value,
                          Evaluate(operand, BroadcastIndex(index, graph_.sizes(operand), loops_)));
      operands.push_back(value);
    }
    result = Pointwise(node.op, node.type, std::move(operands));
  } else if (node.IsAnchor()) {
    const auto at = maps_.find(id);
    const auto anchor = anchors_.find(id);
    if (anchor == anchors_.end() || at == maps_.end() || !SameIndex(at->second, index)) {
      return Status::Unsupported("a reduction is read at positions that its shape does not have");
    }
    CF_ASSIGN_OR_RETURN(const int operand, Evaluate(node.operands[0], anchor->second));
    Value value;
    value.kind = node.kind == GraphNode::Kind::kReduce ? Value::Kind::kReduce : Value::Kind::kScan;
    value.type = node.type;
    value.reduce = node.reduce;
    value.scan = node.scan;
    value.operands = {operand};
    result = Append(std::move(value));
  } else if (node.kind == GraphNode::Kind::kProduct) {
    if (!SameIndex(index, OwnIndex(node.sizes, loops_)))
      return Status::Unsupported("a product is read at places of other sums");
    Value value;
    value.kind = Value::Kind::kProduct;
    value.integer = node.integer;
    result = Append(std::move(value));
  } else {
    result = EvaluateView(id, index);
  }
  if (result.ok()) memo_.emplace(key, *result);
  return result;
}

Status StageEmitter::Store(int id, const Index& index, const BufferRef& buffer, DType storage,
                           const std::vector<int64_t>& strides) {
  CF_ASSIGN_OR_RETURN(const int value, Evaluate(id, index));
  struct Store store;
  store.buffer = buffer;
  store.storage = storage;
  store.access = MakeAccess(index, strides, loops_);
  store.value = value;
  stage_.stores.push_back(std::move(store));
  return Status::Ok();
}

}  // namespace cudaforge::rows
