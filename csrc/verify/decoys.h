// Wrong answers that the comparison must refuse. A region for which it accepts one cannot be
// judged. DecoyOfElements (aten_slice_set.h) makes them.
#pragma once

#include <cstddef>
#include <string_view>

namespace cudaforge {

// kLastRowZeroed: the last row that is not all zeros (later rows can correctly be zero, as in a
// pooling's gradient). kRowConstant: each row repeats its first element.
enum class Decoy { kZeros, kOnes, kInputCopy, kLastRowZeroed, kSignFlipped, kRowConstant };
inline constexpr Decoy kDecoys[] = {Decoy::kZeros,       Decoy::kOnes,
                                    Decoy::kInputCopy,   Decoy::kLastRowZeroed,
                                    Decoy::kSignFlipped, Decoy::kRowConstant};
constexpr std::string_view DecoyName(Decoy decoy) {
  constexpr std::string_view kNames[] = {"zeros",
                                         "ones",
                                         "a copy of an input",
                                         "the last row zeroed",
                                         "the sign flipped",
                                         "rows of one value"};
  return kNames[static_cast<size_t>(decoy)];
}

}  // namespace cudaforge
