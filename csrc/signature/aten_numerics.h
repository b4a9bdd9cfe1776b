// The settings of PyTorch that may change what an operator computes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace cudaforge {

// Whether the settings of matrix products and convolutions bear upon an overload: as far as is
// known.
bool IsMatrixOp(std::string_view op);

// The settings in force, for a signature of these overloads. Those of matrix products and
// convolutions are left out of regions without any, so that their winners serve under every
// setting; those that few programs change are there only where they are not as usual.
Json NumericsInForce(const std::vector<std::string>& ops);

// The same in a word, equal if and only if the JSON is. `matrix`: IsMatrixOp of any of the ops.
uint64_t NumericsWord(bool matrix);
constexpr uint64_t kDeterministicBit = 1;  // of the word: deterministic algorithms are asked for
// Has what NumericsInForce gave be in force in this process, as far as it says anything.
void SetNumerics(const Json& numerics);

// NumericsWord(true) while NumericsInForce gave this; nothing where it has no settings of matrix
// products.
std::optional<uint64_t> MatrixNumericsWord(const Json& numerics);

}  // namespace cudaforge
