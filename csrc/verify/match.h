// How strictly a region's outputs are compared with ATen's.
#pragma once

#include "signature/op_facts.h"
#include "signature/op_signature.h"

namespace cudaforge {

// The strictest rule for floating outputs that the ops justify: kBitwise if every node only moves
// data, kEqual if every node is exact in any precision, else kTolerance.
Match MatchForOps(const OpSignature& signature);

// Returns true if output `o` is the same for all inputs by definition of its op and arguments, or
// is empty. Drawn inputs are not considered.
bool IsConstant(const OpSignature& signature, size_t o);

}  // namespace cudaforge
