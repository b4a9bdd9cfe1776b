// The axes of a region for one of its outputs: how the dimensions of its tensors correspond, and
// which axes are free. Found from the operators' OpDims. An axis is free only if that is known.
//   mm(x[8, 64], w[64, 5]): output [a, c], x [a, b], w [b, c]; a and c are free, b is permutable.
// Every use of an input counts as a separate input: x - mean(x) has a free axis in its first use
// only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "signature/op_signature.h"
#include "verify/axis_table.h"

namespace cudaforge {

// A number among a node's arguments that is the size of some axes.
struct SizeLiteral {
  int argument = 0;
  int element = -1;  // in a list; -1: the argument itself
  AxisList axes;
};

struct RegionAxes {
  struct Axis {
    int64_t size = 1;
    AxisState state = AxisState::kFree;
  };
  using Dims = std::vector<AxisList>;  // of a tensor

  // The nodes that the output needs, with a separate input for each use, and the one output.
  OpSignature signature;
  std::vector<int> input_of;  // by its inputs: the index of the region's input
  std::vector<Axis> axes;
  std::vector<Dims> inputs;
  std::vector<std::vector<Dims>> nodes;            // by node, then output; empty for absent ones
  std::vector<std::vector<SizeLiteral>> literals;  // by node
  std::vector<bool> causal;                        // by node: see Adapted

  const Dims& output() const {
    const OutputRef& ref = signature.outputs[0];
    return nodes[static_cast<size_t>(ref.node)][static_cast<size_t>(ref.out)];
  }
  // The output's axes in row-major order. An element's index consists of one digit per axis.
  AxisList OutputAxes() const;
  // The free axes of OutputAxes.
  AxisList FreeAxes() const;
  // The region with sizes[i] places in axis i. `masked`: attention nodes in `causal` get an
  // explicit mask instead, as one more input each, in their order.
  OpSignature Adapted(std::span<const int64_t> sizes, bool masked = false) const;
  // The dimensions [batch..., L, S] of that mask.
  Dims MaskDims(size_t node) const;
  Json ToJson() const;  // {"output": ["4096 free", ...], ...}: for reports and tests
};

// Calls visit(reference) for each tensor among the arguments, including those in lists.
void ForEachTensor(Json& arguments, const auto& visit) {
  for (Json& argument : arguments) {
    if (IsTensorReference(argument)) {
      visit(argument);
    } else if (argument.is_array()) {
      for (Json& element : argument) {
        if (IsTensorReference(element)) visit(element);
      }
    }
  }
}

// REQUIRES: output < signature.outputs.size(), a normalised signature (NormalizeAten). `by_blocks`:
// the output's node is a sum that may be computed in blocks, so the axes that it sums along are
// free.
RegionAxes FindAxes(const OpSignature& signature, size_t output, bool by_blocks = false);

}  // namespace cudaforge
