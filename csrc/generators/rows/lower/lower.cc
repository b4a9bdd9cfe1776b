#include <algorithm>
#include <unordered_map>

#include "generators/rows/lower/node.h"
#include "generators/rows/lower/stages.h"
#include "generators/rows/row_program.h"

namespace cudaforge::rows {
namespace {

struct Entry {
  LowerFunction lower;
  bool anchor;
};

const std::unordered_map<std::string, Entry>& Overloads() {
  static const auto kOverloads = [] {
    std::unordered_map<std::string, Entry> all;
    for (const LowerTable* table : {&PointwiseTable(), &ActivationTable()}) {
      for (const auto& [name, lower] : *table) all.emplace(name, Entry{lower, false});
    }
    for (const LowerTable* table : {&ReductionTable(), &NormTable(), &PoolTable(), &LossTable()}) {
      for (const auto& [name, lower] : *table) all.emplace(name, Entry{lower, true});
    }
    return all;
  }();
  return kOverloads;
}

Status CheckNotEmpty(const OpSignature& signature) {
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    if (signature.inputs[i].numel() == 0) {
      return Status::Unsupported("input " + std::to_string(i) + " is empty");
    }
  }
  for (size_t o = 0; o < signature.outputs.size(); ++o) {
    if (signature.output_spec(o).numel() == 0) {
      return Status::Unsupported("output " + std::to_string(o) + " is empty");
    }
  }
  return Status::Ok();
}

// How far a node's rounding may differ between two correct kernels: ScalarFacts::rounding.
int RoundingOf(const GraphNode& node) {
  if (!IsFloatType(node.type)) return 0;
  switch (node.kind) {
    case GraphNode::Kind::kScan:
    case GraphNode::Kind::kProduct:
      return 2;
    case GraphNode::Kind::kReduce:
      return node.reduce == ReduceOp::kMax || node.reduce == ReduceOp::kMin ? 0 : 2;
    case GraphNode::Kind::kPointwise:
      return ScalarFactsOf(node.op).rounding;
    default:
      return 0;
  }
}

// Per node: true if two correct kernels may compute different bits. One operation on inputs is
// always the same; two may be fused. Comparisons of these values (index of a maximum, x > y) may
// then differ.
std::vector<bool> DependsOnRounding(const Graph& graph) {
  std::vector<int> rounding;
  for (const GraphNode& node : graph.nodes()) {
    int most = 0;
    for (int operand : node.operands) most = std::max(most, rounding[static_cast<size_t>(operand)]);
    rounding.push_back(std::min(most + RoundingOf(node), 2));
  }
  std::vector<bool> depends;
  for (int r : rounding) depends.push_back(r == 2);
  return depends;
}

}  // namespace

std::vector<std::string> OverloadNames(bool anchor) {
  std::vector<std::string> names;
  for (const auto& [name, entry] : Overloads()) {
    if (entry.anchor == anchor) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<RegionGraph> ReadRegion(const OpSignature& signature,
                               const std::function<bool(NodeReader&)>& reads) {
  CF_RETURN_IF_ERROR(CheckNotEmpty(signature));
  RegionGraph region;
  Graph& graph = region.graph;
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const TensorSpec& spec = signature.inputs[i];
    inputs.push_back({graph.Input(static_cast<int>(i), spec), spec.dtype, true});
  }
  std::vector<std::vector<Tensor>> results(signature.nodes.size());
  for (size_t n = 0; n < signature.nodes.size(); ++n) {
    const Node& node = signature.nodes[n];
    NodeReader reader(graph, signature, n, results, inputs);
    if (!reads(reader)) {
      const auto found = Overloads().find(node.op);
      if (found == Overloads().end()) return Status::Unsupported(node.op + " has no lowering");
      region.has_anchor = region.has_anchor || found->second.anchor;
      found->second.lower(reader);
    }
    if (!graph.status().ok()) {
      const std::string& message = graph.status().message();
      return message.starts_with(node.op) ? graph.status()
                                          : Status::Unsupported(node.op + ": " + message);
    }
  }
  const std::vector<bool> inexact = DependsOnRounding(graph);
  for (size_t o = 0; o < signature.outputs.size(); ++o) {
    const OutputRef& ref = signature.outputs[o];
    const Tensor& tensor = results[static_cast<size_t>(ref.node)][static_cast<size_t>(ref.out)];
    if (!tensor.defined()) {
      return Status::Unsupported("output " + std::to_string(o) + " is not computed");
    }
    if (!IsFloatType(ComputeType(tensor.dtype)) && inexact[static_cast<size_t>(tensor.node)]) {
      return Status::Unsupported("output " + std::to_string(o) +
                                 " is exact and depends on rounded values");
    }
    region.outputs.push_back({tensor.node, signature.output_spec(o)});
  }
  if (region.outputs.empty()) return Status::Unsupported("the region has no output");
  return region;
}

Result<Program> Lower(const OpSignature& signature) {
  CF_ASSIGN_OR_RETURN(const RegionGraph region,
                      ReadRegion(signature, [](NodeReader&) { return false; }));
  if (!region.has_anchor)
    return Status::Unsupported("the region has no reduction, scan, pooling or loss");
  CF_ASSIGN_OR_RETURN(Program program, BuildStages(region.graph, signature.inputs, region.outputs));
  SetAlignments(program.stages, signature);
  const Status valid = program.Validate(signature);
  if (!valid.ok()) return Status::Internal("lowering made a bad program: " + valid.message());
  return program;
}

void SetAlignments(std::span<Stage> stages, const OpSignature& signature) {
  for (Stage& stage : stages) {
    for (Value& value : stage.values) {
      if (value.kind != Value::Kind::kLoad || value.buffer.kind != BufferKind::kInput) continue;
      value.alignment = signature.inputs[static_cast<size_t>(value.buffer.index)].alignment;
    }
  }
}

}  // namespace cudaforge::rows
