// JSON that agents answer, taken out of the text around it. Replies are hostile until proven
// otherwise: parsing takes linear time and memory, never throws, and refuses what it is not sure of
// with an error that can be sent back to the agent.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace cudaforge {

// The reply's JSON object: the whole reply; else the first closed fenced block that says json or
// begins with a brace; else the first {...} in the text that begins as an object does. Mended: a
// byte order mark, text around the object, commas before a closing bracket, raw line breaks and
// tabs in strings. Errors: kTimeout over limits.max_bytes; kInvalidArgument for no object, one that
// is not closed, nested deeper than limits.max_depth, with duplicate keys, numbers that are not
// finite, or malformed beyond those repairs, and for text that is not UTF-8.
Result<Json> ParseJsonReply(std::string_view reply,
                            const JsonLimits& limits = {.max_bytes = size_t{1} << 20,
                                                        .max_depth = 64});

// The objects of a text that are in no other, in their order, up to one that is not closed or is
// nested deeper than `max_depth`: what begins as an object with a field does, well-formed or not.
std::vector<std::string_view> ObjectsIn(std::string_view text, int max_depth = 64);

// True when the first of `text` that is not white space is a brace.
bool BeginsAsObject(std::string_view text);

}  // namespace cudaforge
