// Little-endian integers in byte strings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cudaforge {

template <typename T>
void AppendLittleEndian(std::string* out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    *out += static_cast<char>(static_cast<uint8_t>(value >> (8 * i)));
  }
}

// REQUIRES: offset + sizeof(T) <= bytes.size().
template <typename T>
T LittleEndianAt(std::string_view bytes, size_t offset) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<T>(static_cast<uint8_t>(bytes[offset + i])) << (8 * i);
  }
  return value;
}

}  // namespace cudaforge
