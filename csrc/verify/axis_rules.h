// One node's part of FindAxes: its rule of OpDims.
#pragma once

#include <vector>

#include "signature/op_facts.h"
#include "signature/op_signature.h"
#include "verify/axes.h"

namespace cudaforge {

// What a rule reads and writes. `node` may be replaced by an equal one whose sizes are literals.
struct RuleContext {
  using Dims = RegionAxes::Dims;

  AxisTable& table;
  const OpSignature& signature;
  Node& node;
  const OpFacts& facts;
  std::vector<bool> needed;       // by the node's outputs
  std::vector<const Dims*> args;  // of the positional arguments that are tensors; else null
  std::vector<std::vector<const Dims*>> lists;  // of those that are lists of tensors
  std::vector<Dims>& outputs;                   // to be filled in
  std::vector<SizeLiteral>& literals;
  bool by_blocks = false;  // the node's sums leave axes as they are: see FindAxes
  bool causal = false;     // filled in

  bool Has(size_t i) const { return i < args.size() && args[i] != nullptr; }
  const TensorSpec& Spec(size_t i) const { return *signature.SpecOf(node.args[i]); }
  const TensorSpec& Out(size_t k) const { return node.outputs[k]; }
  int64_t Int(size_t i, int64_t otherwise = 0) const;
  // A number or a list of them; empty for anything else.
  std::vector<int64_t> Ints(size_t i) const;
  bool Bool(size_t i) const { return i < node.args.size() && node.args[i] == true; }
  // Its size is 1, or it is no dimension of its own.
  void Positional(const AxisList& axes) const { table.Restrict(axes, AxisState::kPositional); }
  void Permutable(const AxisList& axes) const { table.Restrict(axes, AxisState::kPermutable); }
  Dims Fresh(const TensorSpec& spec, AxisState state = AxisState::kFree) const;
  // Operand dimensions broadcast to `to`, from the last one on. False where sizes do not fit.
  bool Align(const Dims& operand, const Dims& to) const;
};

// Fills in the node's outputs. False: nothing is known, and the caller takes it so.
bool ApplyRule(RuleContext* context);
// The rules of matrix products, convolutions and attention.
bool ApplyProductRule(RuleContext* context);
// The rules of layouts: views, joins, lookups.
bool ApplyLayoutRule(RuleContext* context);

}  // namespace cudaforge
