// Wrong answers that a test worth its name must tell from right ones.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "signature/op_signature.h"
#include "worker/input_set.h"

namespace cudaforge {

enum class Decoy { kZeros, kOnes, kInputCopy, kLastRowZeroed, kSignFlipped, kRowConstant };
inline constexpr Decoy kDecoys[] = {Decoy::kZeros,       Decoy::kOnes,
                                    Decoy::kInputCopy,   Decoy::kLastRowZeroed,
                                    Decoy::kSignFlipped, Decoy::kRowConstant};
std::string_view DecoyName(Decoy decoy);

// The decoy in place of an output whose right bytes are `aten`. nullopt where it makes no sense: no
// input to copy, one row only, rows of one element. kLastRowZeroed: the last row that holds
// anything but zeros. Where an op leaves the rows after it empty (the gradient of a pooling whose
// windows end before the edge), zeros there are the right answer, and poisoned outputs show what is
// not written.
std::optional<std::string> MakeDecoy(Decoy decoy, const TensorSpec& spec, const std::string& aten,
                                     const OpSignature& signature, const InputSet& inputs);

}  // namespace cudaforge
