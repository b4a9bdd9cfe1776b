// Reads ATen nodes into the graph. One function per overload, in tables by family.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "generators/rows/lower/graph.h"
#include "generators/rows/lower/stages.h"

namespace cudaforge::rows {

// A tensor of the region: its node and its form in ATen. `exact`: the node has ATen's value. A half
// value that ATen rounds and this graph does not is not exact.
struct Tensor {
  int node = -1;  // -1: undefined
  DType dtype = DType::kFloat32;
  bool exact = true;
  bool defined() const { return node >= 0; }
};

// Reads one node's arguments and records its results. Errors go to the graph with the node's name,
// and are sticky.
class NodeReader {
 public:
  NodeReader(Graph& graph, const OpSignature& signature, size_t node,
             std::vector<std::vector<Tensor>>& results, const std::vector<Tensor>& inputs);

  Graph& g() { return graph_; }
  const Node& node() const { return node_; }
  DeviceType device() const { return device_; }
  const TensorSpec& spec(size_t out = 0) const;
  Type type(size_t out = 0) const { return ComputeType(spec(out).dtype); }

  // The argument at `position`, or by keyword if it is not there; null if absent.
  const Json& Arg(size_t position, const char* name) const;
  bool IsTensor(size_t position, const char* name) const;
  Tensor TensorArg(size_t position, const char* name);       // an error if absent
  Tensor OptionalTensor(size_t position, const char* name);  // undefined if null or absent
  double Number(size_t position, const char* name, double absent);
  int64_t Int(size_t position, const char* name, int64_t absent);
  bool Flag(size_t position, const char* name, bool absent);
  std::string Text(size_t position, const char* name, const char* absent);
  // Empty if null or absent. An integer is a list of one.
  std::vector<int64_t> Ints(size_t position, const char* name);

  // `tensor` as a value of `type`; rounded as in ATen unless the type is a float.
  int As(const Tensor& tensor, Type type);
  // ATen's exact value, for comparisons, indices and other uses where every bit matters.
  int Exact(const Tensor& tensor);
  int Rounded(int node, DType dtype);
  // A tensor or scalar argument as a value of `type`.
  int Operand(size_t position, const char* name, Type type);
  // Dimensions from an int, a list, or nothing (all of them), made non-negative.
  std::vector<int> Dims(size_t position, const char* name, size_t rank);
  int Dim(size_t position, const char* name, size_t rank);

  // Sets result `out`: casts to its dtype, checks its shape. Does nothing if it is absent.
  void Result(size_t out, int node, bool exact = false);
  void Fail(const std::string& reason);
  bool ok() const { return graph_.status().ok(); }

 private:
  Tensor Resolve(const Json& reference);
  Graph& graph_;
  const DeviceType device_;
  const Node& node_;
  std::vector<std::vector<Tensor>>& results_;
  std::vector<Tensor>& mine_;
  const std::vector<Tensor>& inputs_;
};

using LowerFunction = void (*)(NodeReader&);
using LowerTable = std::vector<std::pair<std::string, LowerFunction>>;

// The overloads of each family. The first two have no anchors, the others only anchors.
const LowerTable& PointwiseTable();
const LowerTable& ActivationTable();
const LowerTable& ReductionTable();
const LowerTable& NormTable();
const LowerTable& PoolTable();
const LowerTable& LossTable();

// The overloads in those tables, sorted: anchors, or the others.
std::vector<std::string> OverloadNames(bool anchor);

// The nodes of a region as a graph.
struct RegionGraph {
  Graph graph;
  std::vector<GraphOutput> outputs;
  bool has_anchor = false;  // an overload of the tables that are no pointwise ones
};

// Sets the alignment of what the stages load from inputs.
void SetAlignments(std::span<Stage> stages, const OpSignature& signature);

// Reads a region. `reads` sees each node first, and returns true if it has read the node itself.
// kUnsupported: a node without a lowering, an empty tensor, an exact output that depends on
// rounding.
Result<RegionGraph> ReadRegion(const OpSignature& signature,
                               const std::function<bool(NodeReader&)>& reads);

}  // namespace cudaforge::rows
