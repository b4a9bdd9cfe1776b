// Writes one stage: evaluates graph nodes at loop positions into SSA values.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "generators/rows/lower/graph.h"
#include "generators/rows/lower/index.h"

namespace cudaforge::rows {

class StageEmitter {
 public:
  // `scratch[n]`: the scratch buffer (row-major) that holds node n, or -1. `anchors[n]`: where this
  // stage's reductions and scans read their operand. `maps[n]`: where their results are. All must
  // outlive the emitter.
  StageEmitter(const Graph& graph, const std::vector<TensorSpec>& inputs, const Loops& loops,
               const std::vector<int>& scratch, const std::map<int, Index>& anchors,
               const std::map<int, Index>& maps);

  // Returns the value of node `id` at `index`. kUnsupported: the node is a reduction in another
  // stage or index.
  Result<int> Evaluate(int id, const Index& index);
  // Stores node `id`, read at `index`, with these strides (of the node's dimensions).
  Status Store(int id, const Index& index, const BufferRef& buffer, DType storage,
               const std::vector<int64_t>& strides);
  Stage Take() { return std::move(stage_); }

 private:
  int Append(Value value);
  int Constant(Type type, double number, int64_t integer);
  int Integer(int64_t value) { return Constant(Type::kI64, 0, value); }
  int Pointwise(ScalarOp op, Type type, std::vector<int> operands);
  int Load(const BufferRef& buffer, DType storage, const Index& index,
           const std::vector<int64_t>& strides, int outside);
  int IndexValue(const DimIndex& index);
  int Numerator(const DimIndex& index);
  int InBounds(const Index& index);
  Result<int> EvaluateView(int id, const Index& index);
  bool IsLeaf(int id) const;
  Result<int> EvaluateLeaf(int id, const Index& index, int outside);

  const Graph& graph_;
  const std::vector<TensorSpec>& inputs_;
  const Loops& loops_;
  const std::vector<int>& scratch_;
  const std::map<int, Index>& anchors_;
  const std::map<int, Index>& maps_;
  Stage stage_;
  std::map<std::string, int> values_;  // by the text of their computation
  std::map<std::string, int> memo_;    // by node and index
};

// Sets every value's space from its operands and accesses. Makes stores that walk the inner space
// store element values.
void AssignSpaces(Stage& stage);

}  // namespace cudaforge::rows
