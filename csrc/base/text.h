// Text: is it UTF-8, is it in a list, how is it or a number shown in a message.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>

namespace cudaforge {

// True for well-formed UTF-8 (RFC 3629: no surrogates, no overlong forms). Linear.
bool IsUtf8(std::string_view text);

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

// With so many significant digits, zeros at the end left out: "0.125", "1.5e+09".
std::string Significant(double value, int digits);
// With so many digits after the point: "0.1250".
std::string Fixed(double value, int digits);

}  // namespace cudaforge
