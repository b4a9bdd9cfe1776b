// The PyTorch settings that may change what an operator computes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace cudaforge {

// Returns true if the settings of matrix products and convolutions are known to affect an overload.
bool IsMatrixOp(std::string_view op);

// Returns the current settings, for a signature of these overloads. Settings of matrix products are
// left out if no overload depends on them. Rare settings are listed only if they differ from the
// default.
Json NumericsInForce(const std::vector<std::string>& ops);

// The same as a word: equal words if and only if equal JSON. `matrix`: IsMatrixOp of any of the
// ops.
uint64_t NumericsWord(bool matrix);
// bit of the word: deterministic algorithms are requested
constexpr uint64_t kDeterministicBit = 1;
// Applies settings from NumericsInForce to this process. Settings that it does not list stay.
void SetNumerics(const Json& numerics);

// Returns the NumericsWord(true) that corresponds to these settings; nullopt if they list no
// settings of matrix products.
std::optional<uint64_t> MatrixNumericsWord(const Json& numerics);

}  // namespace cudaforge
