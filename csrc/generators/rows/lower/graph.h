// The graph between ATen nodes and row programs: pointwise operations, reductions, scans and index
// maps ("views") over logical tensors. Layout and loops come later (stages.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "generators/rows/row_program.h"

namespace cudaforge::rows {

// An operand dimension's index: (offset + sum coef[k] * own index k) / div, with DimIndex's bounds.
struct ViewDim {
  int64_t offset = 0;
  std::vector<int64_t> coef;
  int64_t div = 1;
  int64_t bound = -1;
};

struct GraphNode {
  enum class Kind { kInput, kConst, kIota, kPointwise, kReduce, kScan, kView, kMerge, kProduct };
  Kind kind = Kind::kConst;
  Type type = Type::kF32;
  DType storage = DType::kFloat32;  // kInput
  std::vector<int64_t> sizes;       // logical; reductions keep their dimensions with size 1
  std::vector<int> operands;        // kView with bounds: second operand, the kConst read outside
  double number = 0;                // kConst, floating
  // kConst, integral; kInput: index; kMerge: size of the second dimension; kProduct: which
  int64_t integer = 0;
  int dim = 0;  // kIota: the dimension whose index it is; kMerge: merges dim and dim + 1
  ScalarOp op = ScalarOp::kAdd;
  ReduceOp reduce = ReduceOp::kSum;
  ScanOp scan = ScanOp::kSum;
  std::vector<int> dims;      // kReduce, kScan: ascending
  std::vector<ViewDim> view;  // kView: one per operand dimension

  bool HasBounds() const { return kind == Kind::kView && operands.size() == 2; }
  bool IsAnchor() const { return kind == Kind::kReduce || kind == Kind::kScan; }
};

// Builds nodes, and equal nodes once. Errors are sticky: later builders return node 0, and status()
// has the first error.
class Graph {
 public:
  int Input(int index, const TensorSpec& spec);
  int Number(Type type, double value);        // a constant of any type
  int Integer(int64_t value);                 // kI64
  int Iota(int rank, int dim, int64_t size);  // kI64; all sizes except `dim`'s are 1
  // The float32 sums of a matrix product of these sizes, one of `number` others of the graph
  // (tiles/contraction.h).
  int Product(std::vector<int64_t> sizes, int number);
  // Broadcasts operands, which must have one type (kWhere: those after the condition).
  int Pointwise(ScalarOp op, const std::vector<int>& operands);
  int Cast(int a, Type type);  // `a` itself if it has the type
  // Reduces `dims` (any order; keeps them with size 1). All may have size 1.
  int Reduce(ReduceOp op, int a, std::vector<int> dims);
  int Scan(ScanOp op, int a, int dim);
  int Squeeze(int a, const std::vector<int>& dims);  // removes dimensions of size 1
  int Unsqueeze(int a, int dim);
  // Any affine view; `outside` < 0 if every index is in bounds.
  int View(int a, std::vector<int64_t> sizes, std::vector<ViewDim> dims, int outside);
  int Split(int a, int dim, int64_t low);  // dimension `dim` becomes (size / low, low)
  int Merge(int a, int dim);               // dimensions dim and dim + 1 become one

  int Add(int a, int b) { return Pointwise(ScalarOp::kAdd, {a, b}); }
  int Sub(int a, int b) { return Pointwise(ScalarOp::kSub, {a, b}); }
  int Mul(int a, int b) { return Pointwise(ScalarOp::kMul, {a, b}); }
  int Div(int a, int b) { return Pointwise(ScalarOp::kDiv, {a, b}); }
  int Unary(ScalarOp op, int a) { return Pointwise(op, {a}); }
  int Where(int c, int a, int b) { return Pointwise(ScalarOp::kWhere, {c, a, b}); }
  // A constant with the type of `a`.
  int Like(int a, double value) { return Number(node(a).type, value); }

  const GraphNode& node(int id) const { return nodes_[static_cast<size_t>(id)]; }
  const std::vector<GraphNode>& nodes() const { return nodes_; }
  const std::vector<int64_t>& sizes(int id) const { return node(id).sizes; }
  const Status& status() const { return status_; }
  // Records an error; returns node 0.
  int Fail(Status status);

 private:
  int Append(GraphNode node);
  std::vector<GraphNode> nodes_{GraphNode{}};
  std::map<std::string, int> ids_;
  Status status_;
};

}  // namespace cudaforge::rows
