#include "llm/secrets.h"

#include <algorithm>
#include <utility>

namespace cudaforge {

std::string WithoutKey(std::string_view text, std::string_view key) {
  std::string out;
  while (!key.empty()) {
    const size_t at = text.find(key);
    if (at == std::string_view::npos) break;
    out.append(text.substr(0, at)).append("[key]");
    text.remove_prefix(at + key.size());
  }
  return out.append(text);
}

std::string WithoutKeys(std::string text, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) text = WithoutKey(text, key);
  return text;
}

std::string KeyFilter::Pass(std::string_view piece) {
  std::string text = WithoutKey(held_ + std::string(piece), key_);
  size_t keep = key_.empty() ? 0 : std::min(key_.size() - 1, text.size());
  while (keep > 0 && text.compare(text.size() - keep, keep, key_, 0, keep) != 0) --keep;
  held_ = text.substr(text.size() - keep);
  text.erase(text.size() - keep);
  return text;
}

std::string KeyFilter::Rest() { return std::exchange(held_, {}); }

}  // namespace cudaforge
