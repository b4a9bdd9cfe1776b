// The role of each input in the ATen calls that read it: an index must be in range, a saved
// standard deviation must be positive. Found by walking the signature's nodes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "signature/op_facts.h"
#include "signature/op_signature.h"

namespace cudaforge {

struct InputRole {
  using Kind = OperandRole;
  Kind kind = Kind::kValue;
  int64_t limit = 0;
  int64_t ignore_index = -100;
};

// Returns one role per input. kUnsupported: an integer input reaches an op that may use it as an
// index in an unknown way. An index out of range would be undefined behaviour on a GPU.
Result<std::vector<InputRole>> FindRoles(const OpSignature& signature);

}  // namespace cudaforge
