// What agents answer, taken out of the text around it. Replies are hostile until proven otherwise:
// every function here takes linear time and memory, never throws, and refuses what it is not sure
// of with an error that can be sent back to the agent.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace cudaforge {

struct CodeBlock {
  std::string language;  // the fence's first word, lower case: "cuda", "cpp"; may be empty
  std::string code;      // lines end in LF; not empty
  bool one_of_several = false;
};

struct CodeBlockOptions {
  size_t max_bytes = size_t{1} << 20;  // of the whole reply
  // Take the last complete block where there are several, or where the last one is cut off.
  bool take_last = false;
};

// The reply's one fenced code block. Errors: kTimeout over max_bytes; kInvalidArgument for no
// block, more than one, one that is not closed (a reply cut off), an empty one, text that is not
// UTF-8, or a zero byte.
Result<CodeBlock> ParseCodeBlock(std::string_view reply, const CodeBlockOptions& options = {});

struct JsonReply {
  Json value;  // an object
  // What had to be mended or left out, in words; empty for a reply that was the object alone.
  std::vector<std::string> repairs;
};

// The reply's JSON object: the whole reply; else the first closed fenced block that says json or
// begins with a brace; else the first {...} in the text that begins as an object does. Mended: a
// byte order mark, text around the object, commas before a closing bracket, raw line breaks and
// tabs in strings. Errors: kTimeout over limits.max_bytes; kInvalidArgument for no object, one that
// is not closed, nested deeper than limits.max_depth, with duplicate keys, numbers that are not
// finite, or malformed beyond those repairs, and for text that is not UTF-8.
Result<JsonReply> ParseJsonReply(std::string_view reply,
                                 const JsonLimits& limits = {.max_bytes = size_t{1} << 20,
                                                             .max_depth = 64});

}  // namespace cudaforge
