// The sets of inputs that a region is tried on. Nothing is drawn here: see verify/drawer.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "signature/op_signature.h"
#include "signature/roles.h"
#include "verify/device/drawn_tensor.h"

namespace cudaforge {

struct DrawSet {
  std::string name;                          // "normal", "row_scales", "one_special, turn 2"
  std::vector<device::DrawnTensor> tensors;  // one an input
  bool derive = false;        // some inputs must be made by ATen of others (DeriveInputs)
  bool worth_errors = false;  // ordinary finite numbers, a new draw of which has errors alike
};

// By the bytes of inputs and outputs, about 24 sets (up to 32 MiB), 8 (up to 256 MiB) or 5 (more),
// of those that tell something of this region. Large regions are tried on sets whose rows are of
// many kinds. Which row is of which kind and where special values are depends on `seed`, and on
// the seed with which a set is drawn. Inputs that share storage are drawn apart, as a signature
// does not tell how they overlap; those of one spec and role are equal in set "uniform".
// kInvalidArgument: not one role an input.
Result<std::vector<DrawSet>> PlanDraws(const OpSignature& signature,
                                       std::span<const InputRole> roles, uint64_t seed);

}  // namespace cudaforge
