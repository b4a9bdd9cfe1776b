// Text from outside: is it UTF-8, how is it shown in a message.
#pragma once

#include <cstddef>
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

}  // namespace cudaforge
