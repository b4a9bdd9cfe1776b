// SHA-256 (FIPS 180-4), computed by libsodium.
#pragma once

#include <string>
#include <string_view>

namespace cudaforge {

// 64 lower-case hexadecimal digits. Thread-safe.
std::string Sha256Hex(std::string_view bytes);

}  // namespace cudaforge
