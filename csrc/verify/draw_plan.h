// Plans the sets of inputs that a region is tried on. verify/drawer.h draws them.
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
  bool derive = false;        // ATen must compute some inputs from others (DeriveInputs)
  bool worth_errors = false;  // ordinary finite numbers: another draw has similar errors
};

// Plans the sets that matter for this region. Their number depends on the bytes of inputs and
// outputs: 13 or more (up to 32 MiB), 5 or more (up to 256 MiB) or 4 or more. Sets of large regions
// mix rows of many kinds. Kinds of rows and places of special values depend on `seed` and on the
// seed of the draw. Inputs that share storage are drawn separately. kInvalidArgument: not one role
// an input.
Result<std::vector<DrawSet>> PlanDraws(const OpSignature& signature,
                                       std::span<const InputRole> roles, uint64_t seed);

}  // namespace cudaforge
