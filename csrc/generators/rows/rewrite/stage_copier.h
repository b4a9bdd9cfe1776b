// Helps to rewrite stages: copies values, and adds new ones.
#pragma once

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "generators/rows/lower/graph.h"
#include "generators/rows/row_program.h"

namespace cudaforge::rows {

// Copies values from one stage to another with their operands, each once.
class StageCopier {
 public:
  // `replace(v)` returns the new value for old value v, or -1 to copy it. `adapt` converts a copied
  // value to the new loops.
  StageCopier(const Stage& from, Stage& to, std::function<int(int)> replace,
              std::function<void(Value&)> adapt)
      : from_(from), to_(to), replace_(std::move(replace)), adapt_(std::move(adapt)) {}

  int Copy(int v) {
    const auto found = copies_.find(v);
    if (found != copies_.end()) return found->second;
    int copy = replace_(v);
    if (copy < 0) {
      Value value = from_.values[static_cast<size_t>(v)];
      for (int& operand : value.operands) operand = Copy(operand);
      if (value.out_of_bounds >= 0) value.out_of_bounds = Copy(value.out_of_bounds);
      adapt_(value);
      copy = Append(std::move(value));
    }
    copies_[v] = copy;
    return copy;
  }

  int Append(Value value) {
    to_.values.push_back(std::move(value));
    return static_cast<int>(to_.values.size()) - 1;
  }

  int Number(Type type, double number, int64_t integer) {
    Value value;
    value.type = type;
    value.number = number;
    value.integer = integer;
    return Append(std::move(value));
  }

  int Pointwise(ScalarOp op, Type type, std::vector<int> operands) {
    Value value;
    value.kind = Value::Kind::kPointwise;
    value.type = type;
    value.op = op;
    value.operands = std::move(operands);
    return Append(std::move(value));
  }

  int Loop(Value::Kind kind, int dim) {
    Value value;
    value.kind = kind;
    value.type = Type::kI64;
    value.dim = dim;
    return Append(std::move(value));
  }

  int Reduce(ReduceOp op, Type type, int operand) {
    Value value;
    value.kind = Value::Kind::kReduce;
    value.type = type;
    value.reduce = op;
    value.operands = {operand};
    return Append(std::move(value));
  }

  int Load(int buffer, Type type, Access access) {
    Value value;
    value.kind = Value::Kind::kLoad;
    value.type = type;
    value.buffer = {BufferKind::kScratch, buffer};
    value.storage = StorageOf(type);
    value.access = std::move(access);
    return Append(std::move(value));
  }

 private:
  const Stage& from_;
  Stage& to_;
  std::function<int(int)> replace_;
  std::function<void(Value&)> adapt_;
  std::map<int, int> copies_;
};

}  // namespace cudaforge::rows
