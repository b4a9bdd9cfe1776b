// Text: its characters, its parts, and numbers as text.
//
// Every function gives the same result in every locale. A program may set a locale with a decimal
// comma or with grouped digits (setlocale, std::locale::global), which printf, strtod, isalpha and
// streams obey: csrc and cache do not use them (tests/lint/test_locale_calls.py).
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

// True for well-formed UTF-8 (RFC 3629: no surrogates, no overlong forms). Linear.
bool IsUtf8(std::string_view text);

// Of ASCII alone.
constexpr bool IsDigit(char c) { return c >= '0' && c <= '9'; }
constexpr bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// At most `max_chars` characters of ASCII for a message: control characters and whatever is not
// ASCII become '?', runs of white space one blank; what was cut ends in "...".
std::string Printable(std::string_view text, size_t max_chars);

// At most `max_bytes` bytes of it, each that is no printable ASCII as "\xe9".
std::string Escaped(std::string_view text, size_t max_bytes);

// Whether `word` is in a list of texts.
template <typename List>
bool IsIn(std::string_view word, const List& list) {
  return std::find(std::begin(list), std::end(list), word) != std::end(list);
}

// The parts between separators, in order, as std::getline gives them: "a,,b," has "a", "" and "b".
// They point into `text`.
std::vector<std::string_view> Split(std::string_view text, char separator);

// With so many significant digits, zeros at the end left out: "0.125", "1.5e+09".
std::string Significant(double value, int digits);
// With so many digits after the point: "0.1250".
std::string Fixed(double value, int digits);
// A finite number as a C++ literal without loss: "-0x1.8p+1".
std::string HexFloat(double value);

// The number that all of `text` is, in decimal: "-2.5", "1e3". Blanks before it and one "+" are
// passed over. "inf" and "nan" are numbers, too. nullopt: it is none, or too large or small for a
// double.
std::optional<double> ParseDouble(std::string_view text);

// The integer that all of `text` is, in decimal: a "-" where Int has a sign, then digits. nullopt:
// it is none, or does not fit.
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

// Texts, characters and integers, one after another.
template <typename... Args>
std::string Cat(const Args&... args) {
  std::string text;
  (internal::Append(&text, args), ...);
  return text;
}

}  // namespace cudaforge
