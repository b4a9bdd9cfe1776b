// Extracts JSON from agents' replies. Replies are untrusted: parsing takes linear time and memory,
// and never throws. Ambiguous text is an error that can be sent back to the agent.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace cudaforge {

// Finds the reply's JSON object: the whole reply; else the first closed fenced block that is marked
// json or begins with a brace; else the first {...} in the text. Repairs: a byte order mark, text
// around the object, trailing commas, raw line breaks and tabs in strings. kTimeout: over
// limits.max_bytes. kInvalidArgument: no object, or an incomplete, too deep (limits.max_depth) or
// malformed one; duplicate keys, infinite numbers, invalid UTF-8.
Result<Json> ParseJsonReply(std::string_view reply,
                            const JsonLimits& limits = {.max_bytes = size_t{1} << 20,
                                                        .max_depth = 64});

// Returns the outermost objects of a text, in order, up to one that is incomplete or deeper than
// `max_depth`. Malformed objects that start with a field count too.
std::vector<std::string_view> ObjectsIn(std::string_view text, int max_depth = 64);

// Returns true if the first character that is not white space is a brace.
bool BeginsAsObject(std::string_view text);

}  // namespace cudaforge
