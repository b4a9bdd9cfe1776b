#include "base/text.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

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

// As printf's %.*g or %.*f in the C locale.
std::string Formatted(double value, std::chars_format format, int digits) {
  std::string text(32, '\0');
  while (true) {
    char* const end = text.data() + text.size();
    const auto [rest, error] = std::to_chars(text.data(), end, value, format, digits);
    if (error == std::errc()) {
      text.resize(static_cast<size_t>(rest - text.data()));
      return text;
    }
    text.resize(2 * text.size());
  }
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

std::string Escaped(std::string_view text, size_t max_bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const char c : text.substr(0, max_bytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return out;
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::string Significant(double value, int digits) {
  return Formatted(value, std::chars_format::general, digits);
}

std::string Fixed(double value, int digits) {
  return Formatted(value, std::chars_format::fixed, digits);
}

std::string HexFloat(double value) {
  char digits[32];
  const auto end =
      std::to_chars(digits, std::end(digits), std::fabs(value), std::chars_format::hex);
  return std::string(std::signbit(value) ? "-0x" : "0x").append(digits, end.ptr);
}

std::optional<double> ParseDouble(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end) return std::nullopt;
  return value;
}

}  // namespace cudaforge
