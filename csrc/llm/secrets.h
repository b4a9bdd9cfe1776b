// Keys of services, kept out of whatever is shown or stored.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace cudaforge {

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
