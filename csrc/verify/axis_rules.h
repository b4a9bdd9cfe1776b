// The rules of OpDims for one node, for FindAxes.
#pragma once

#include <vector>

#include "signature/op_facts.h"
#include "signature/op_signature.h"
#include "verify/axes.h"

namespace cudaforge {

// The input and output of a rule. A rule may replace `node` by an equal one with literal sizes.
struct RuleContext {
  using Dims = RegionAxes::Dims;

  AxisTable& table;
  const OpSignature& signature;
  Node& node;
  const OpFacts& facts;
  std::vector<bool> needed;                     // by the node's outputs
  std::vector<const Dims*> args;                // of the positional tensor arguments; else null
  std::vector<std::vector<const Dims*>> lists;  // of the arguments that are lists of tensors
  std::vector<Dims>& outputs;                   // to be filled in
  std::vector<SizeLiteral>& literals;
  bool by_blocks = false;  // the node's sums do not change axes: see FindAxes
  bool causal = false;     // an output

  bool Has(size_t i) const { return i < args.size() && args[i] != nullptr; }
  const TensorSpec& Spec(size_t i) const { return *signature.SpecOf(node.args[i]); }
  const TensorSpec& Out(size_t k) const { return node.outputs[k]; }
  int64_t Int(size_t i, int64_t otherwise = 0) const;
  // An integer or a list of them; empty for anything else.
  std::vector<int64_t> Ints(size_t i) const;
  bool Bool(size_t i) const { return i < node.args.size() && node.args[i] == true; }
  // Marks the axes as positional, unless they have size 1.
  void Positional(const AxisList& axes) const { table.Restrict(axes, AxisState::kPositional); }
  void Permutable(const AxisList& axes) const { table.Restrict(axes, AxisState::kPermutable); }
  Dims Fresh(const TensorSpec& spec, AxisState state = AxisState::kFree) const;
  // Broadcasts the operand's dimensions to `to`, from the last dimension. False if sizes do not
  // fit.
  bool Align(const Dims& operand, const Dims& to) const;
};

// Sets the node's outputs. False: nothing is known, and the caller must assume nothing.
bool ApplyRule(RuleContext* context);
// The rules of matrix products, convolutions and attention.
bool ApplyProductRule(RuleContext* context);
// The rules of layouts: views, joins, lookups.
bool ApplyLayoutRule(RuleContext* context);

}  // namespace cudaforge
