// SHA-256 (FIPS 180-4), computed by libsodium, and digests as text. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cudaforge {

// Two lower-case hexadecimal digits a byte.
std::string Hex(std::string_view bytes);
// 64 digits.
std::string Sha256Hex(std::string_view bytes);
// The first eight bytes of the digest, the most significant first.
uint64_t Sha256Number(std::string_view bytes);

}  // namespace cudaforge
