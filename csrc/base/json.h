// JSON: bounded parsing of untrusted text, and one canonical form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cudaforge {

using Json = nlohmann::json;  // objects keep their keys sorted

struct JsonLimits {
  size_t max_bytes = 64u << 20;
  int max_depth = 64;
};

// Parses UTF-8 text. kInvalidArgument: malformed text, duplicate keys, trailing text, or a document
// over the limits. Never throws.
Result<Json> ParseJson(std::string_view text, const JsonLimits& limits = {});
// As ParseJson, but returns null on an error.
Json JsonOrNull(std::string_view text);

// Sorted keys, no white space, shortest round-trip numbers. Hashes of this text are keys. REQUIRES:
// every string is valid UTF-8 (CF_CHECK) and every float finite (see FloatToJson).
std::string CanonicalJson(const Json& value);

// Compact text of JSON with untrusted strings: invalid UTF-8 is replaced. `ascii`: other characters
// become escapes, so that the text may be cut anywhere.
std::string LenientText(const Json& value, bool ascii = false);
// Returns `value` with invalid UTF-8 replaced.
Json LenientCopy(const Json& value);

// A double as JSON: a number when finite, else {"float": "inf" | "-inf" | "nan"}.
Json FloatToJson(double value);

// Returns the member `field` of an object. Without one, or if `object` is no object, returns a null
// that lives as long as the process.
const Json& MemberOrNull(const Json& object, const char* field);

// Typed access to a field. Errors name it: "launches[0].grid: expected an array".
Result<int64_t> JsonInt(const Json& object, std::string_view field);
Result<double> JsonDouble(const Json& object, std::string_view field);
Result<bool> JsonBool(const Json& object, std::string_view field);
Result<std::string> JsonString(const Json& object, std::string_view field);
Result<std::vector<int64_t>> JsonIntArray(const Json& object, std::string_view field);
// Returns the field; kInvalidArgument if `object` is no object or lacks it.
Result<Json> JsonField(const Json& object, std::string_view field);

}  // namespace cudaforge
