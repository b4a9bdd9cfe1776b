// How strictly a region's outputs are compared with ATen's.
#pragma once

#include "signature/op_facts.h"
#include "signature/op_signature.h"

namespace cudaforge {

// The strictest rule that the ops alone justify, for floating outputs: kBitwise when every node
// only moves data, kEqual when every node is exact in any precision, else kTolerance.
Match MatchForOps(const OpSignature& signature);

// Whether output `o` is the same for all inputs by the definition of its op and the op's arguments,
// or has no elements. How it came out on inputs that were drawn plays no part.
bool IsConstant(const OpSignature& signature, size_t o);

}  // namespace cudaforge
