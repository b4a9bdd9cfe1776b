// Text functions whose results do not depend on the locale.
//
// Programs may set a locale with a decimal comma or grouped digits. It changes printf, strtod,
// isalpha and streams, so csrc and cache do not use these (tests/lint/test_locale_calls.py).
#pragma once

#include <algorithm>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace cudaforge {

// Returns true for well-formed UTF-8 (RFC 3629: no surrogates, no overlong forms). Linear time.
bool IsUtf8(std::string_view text);

// For ASCII only.
constexpr bool IsDigit(char c) { return c >= '0' && c <= '9'; }
constexpr bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Returns at most `max_chars` ASCII characters for a message. Control characters and non-ASCII
// become '?', runs of white space one blank. Shortened text ends in "...".
std::string Printable(std::string_view text, size_t max_chars);

// Returns at most `max_bytes` bytes of the text, with non-printable bytes as "\xe9".
std::string Escaped(std::string_view text, size_t max_bytes);

// Returns true if `word` is in a list of texts.
template <typename List>
bool IsIn(std::string_view word, const List& list) {
  return std::find(std::begin(list), std::end(list), word) != std::end(list);
}

// Returns the parts between separators, in order, as std::getline does: "a,,b," gives "a", "" and
// "b". They point into `text`.
std::vector<std::string_view> Split(std::string_view text, char separator);

// `digits` significant digits, without trailing zeros: "0.125", "1.5e+09".
std::string Significant(double value, int digits);
// `digits` digits after the point: "0.1250".
std::string Fixed(double value, int digits);
// A finite number as a C++ literal without loss: "-0x1.8p+1".
std::string HexFloat(double value);

// Parses all of `text` as a decimal number: "-2.5", "1e3". Accepts leading blanks, one "+", "inf"
// and "nan". nullopt: not a number, or outside a double's range.
std::optional<double> ParseDouble(std::string_view text);

// Parses all of `text` as a decimal integer: a "-" if Int is signed, then digits. nullopt: not an
// integer, or out of range.
template <std::integral Int>
std::optional<Int> ParseInteger(std::string_view text) {
  Int value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end) return std::nullopt;
  return value;
}

namespace internal {

inline void Append(std::string* text, std::string_view part) { *text += part; }
inline void Append(std::string* text, char part) { *text += part; }
void Append(std::string* text, std::floating_point auto) = delete;  // with how many digits?
void Append(std::string* text, std::integral auto part) { *text += std::to_string(part); }

}  // namespace internal

// Concatenates texts, characters and integers.
template <typename... Args>
std::string Cat(const Args&... args) {
  std::string text;
  (internal::Append(&text, args), ...);
  return text;
}

}  // namespace cudaforge
