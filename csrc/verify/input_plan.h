// How much a region is tried: which sets of inputs, and how many draws of each.
#pragma once

#include <vector>

#include "signature/op_signature.h"
#include "verify/inputs.h"

namespace cudaforge {

struct InputPlan {
  // The sets that tell something of the region. By the bytes of its inputs and outputs:
  //                                          up to 32 MiB     up to 256 MiB   more
  //   sets of every region                   all              5 at most       4 at most
  //   + where inputs are smaller than the    2                2               1
  //     largest
  //   + for any() and all(), or for maxima   8 at most        4 at most       2 at most
  //     and minima
  // Among those of every region are turns of kOneSpecial: 8 at most, fewer where there are many
  // elements, 1 over 32 MiB.
  std::vector<InputKind> kinds;
  // Of kAllEqual, and of kinds that have turns (HasTurns), there are none of these: see Varies.
  int64_t draws = 0;          // further ones of each set, on which ATen and the oracle run for
                              // the yardstick of small outputs (NeedsMoreDraws)
  bool twice = false;         // whether candidates are tried on two draws of each set
  int64_t sets_in_doubt = 0;  // more sets of a kind on which ATen and the oracle run where a
                              // candidate is in doubt, for any output (Yardstick::AddTypical)

  // Whether there are further draws of sets of this kind, and two where `twice`.
  static bool Varies(InputKind kind);
  // About what ATen and the oracle take for a set of this kind, its draws included, in what they
  // take for one without draws.
  double Cost(InputKind kind) const;
};

InputPlan PlanInputs(const OpSignature& signature, std::span<const InputRole> roles);

// Whether ATen's errors on an output of this spec need further draws to be worth comparing with: it
// is of few elements, and floating but not float64, which has no use for them.
bool NeedsMoreDraws(const TensorSpec& spec);

}  // namespace cudaforge
