// Text from outside: is it UTF-8, can it be printed, does it give a key away.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace cudaforge {

// True for well-formed UTF-8 (RFC 3629: no surrogates, no overlong forms). Linear.
bool IsUtf8(std::string_view text);

// At most `max_chars` characters of ASCII for a message: control characters and whatever is not
// ASCII become '?', runs of white space one blank; what was cut ends in "...".
std::string Printable(std::string_view text, size_t max_chars);

// Shorter values are no keys: servers that want none are given "EMPTY" or "x", and blotting those
// out would spoil replies.
inline constexpr size_t kShortestSecret = 8;

// `text` with every occurrence of `key` replaced by "[key]". An empty key occurs nowhere.
std::string WithoutKey(std::string_view text, std::string_view key);

// The same for each of `keys`, in their order: one that holds another must stand before it.
std::string WithoutKeys(std::string text, const std::vector<std::string>& keys);

// WithoutKey for text that comes in pieces, a key cut in two included.
class KeyFilter {
 public:
  explicit KeyFilter(std::string key) : key_(std::move(key)) {}
  // What may be passed on after `piece`; holds back an end that could begin a key.
  std::string Pass(std::string_view piece);
  // What was held back. Call once, after the last piece.
  std::string Rest();

 private:
  std::string key_;
  std::string held_;
};

}  // namespace cudaforge
