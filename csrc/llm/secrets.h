// Removes keys of services from text that is shown or stored.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace cudaforge {

// Shorter values are not treated as keys. "EMPTY" or "x" for servers without keys would damage
// replies.
inline constexpr size_t kShortestSecret = 8;

// Returns `text` with each `key` replaced by "[key]". An empty key is ignored.
std::string WithoutKey(std::string_view text, std::string_view key);

// The same for each of `keys`, in order: a key that contains another must come first.
std::string WithoutKeys(std::string text, const std::vector<std::string>& keys);

// WithoutKey for text in pieces, where a key may be split.
class KeyFilter {
 public:
  explicit KeyFilter(std::string key) : key_(std::move(key)) {}
  // Returns what can be passed on; holds back an end that could begin a key.
  std::string Pass(std::string_view piece);
  // Returns the text held back. Call once, after the last piece.
  std::string Rest();

 private:
  std::string key_;
  std::string held_;
};

}  // namespace cudaforge
