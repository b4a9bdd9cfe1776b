#include "base/sha256.h"

#include <sodium.h>

#include <array>

namespace cudaforge {

std::string Hex(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

namespace {

std::array<unsigned char, crypto_hash_sha256_BYTES> Digest(std::string_view bytes) {
  std::array<unsigned char, crypto_hash_sha256_BYTES> digest;
  crypto_hash_sha256(digest.data(), reinterpret_cast<const unsigned char*>(bytes.data()),
                     bytes.size());
  return digest;
}

}  // namespace

std::string Sha256Hex(std::string_view bytes) {
  const auto digest = Digest(bytes);
  return Hex({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

uint64_t Sha256Number(std::string_view bytes) {
  uint64_t number = 0;
  const auto digest = Digest(bytes);
  for (size_t i = 0; i < sizeof(number); ++i) number = number << 8 | digest[i];
  return number;
}

}  // namespace cudaforge
