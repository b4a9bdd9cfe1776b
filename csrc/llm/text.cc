#include "llm/text.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace cudaforge {
namespace {

// The length of the well-formed UTF-8 sequence at the start of `text`, 0 if there is none.
size_t SequenceLength(std::string_view text) {
  const auto byte = [&text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  size_t length = 0;
  uint8_t low = 0x80, high = 0xbf;  // of the second byte
  if (lead >= 0xc2 && lead <= 0xdf) {
    length = 2;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    length = 3;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    length = 4;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
  } else {
    return 0;
  }
  if (text.size() < length || byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string Printable(std::string_view text, size_t max_chars) {
  std::string out;
  bool blank = false;
  while (!text.empty() && out.size() <= max_chars) {
    const char c = text[0];
    if (c == ' ' || (c >= '\t' && c <= '\r')) {
      blank = !out.empty();
      text.remove_prefix(1);
      continue;
    }
    if (blank) out += ' ';
    blank = false;
    out += c > ' ' && c < 0x7f ? c : '?';
    text.remove_prefix(std::max<size_t>(1, SequenceLength(text)));
  }
  if (out.size() <= max_chars) return out;
  out.resize(max_chars < 3 ? 0 : max_chars - 3);
  return out + "...";
}

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
