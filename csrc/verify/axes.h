// The axes of a region, as far as one of its outputs goes: which dimensions of which tensors belong
// together, and which of them are free. From ATen's operators by their facts (OpDims) alone; what
// is not known to be free is not.
//
//   mm(x[8, 64], w[64, 5]): output [a, c], x [a, b], w [b, c]; a and c are free, b is permutable.
//
// Every use of an input counts as an input of its own, so that x - mean(x) has a free axis in its
// first use and none in its second.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "signature/op_signature.h"
#include "verify/axis_table.h"

namespace cudaforge {

// A number of a node's arguments that is as large as some axes are.
struct SizeLiteral {
  int argument = 0;
  int element = -1;  // of a list; -1: the argument itself
  AxisList axes;
};

struct RegionAxes {
  struct Axis {
    int64_t size = 1;
    AxisState state = AxisState::kFree;
  };
  using Dims = std::vector<AxisList>;  // of a tensor

  // The nodes that the output needs, each input used once, and the one output.
  OpSignature signature;
  std::vector<int> input_of;  // by its inputs: the region's
  std::vector<Axis> axes;
  std::vector<Dims> inputs;
  std::vector<std::vector<Dims>> nodes;  // by node, then by its outputs; absent ones have none
  std::vector<std::vector<SizeLiteral>> literals;  // by node
  std::vector<bool> causal;                        // by node: see Adapted

  const Dims& output() const {
    const OutputRef& ref = signature.outputs[0];
    return nodes[static_cast<size_t>(ref.node)][static_cast<size_t>(ref.out)];
  }
  // The output's axes in row-major order: an element's number is one of digits along them.
  AxisList OutputAxes() const;
  // The free ones among them.
  AxisList FreeAxes() const;
  // The region where axis i has sizes[i] places. Attention that hides later keys is given a mask
  // in place of that where `masked`: one more input a node of `causal`, in their order.
  OpSignature Adapted(std::span<const int64_t> sizes, bool masked = false) const;
  // The dimensions [batch..., L, S] of such a mask.
  Dims MaskDims(size_t node) const;
  Json ToJson() const;  // {"output": ["4096 free", ...], ...}: for reports and tests
};

// Calls visit(reference) for each tensor among the arguments, those in lists too.
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

// REQUIRES: output < signature.outputs.size(), a normalised signature (NormalizeAten).
// `by_blocks`: the node of that output is a sum that may be taken by blocks; what it sums along is
// then free.
RegionAxes FindAxes(const OpSignature& signature, size_t output, bool by_blocks = false);

}  // namespace cudaforge
