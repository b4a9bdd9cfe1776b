#include "llm/reply_parser.h"

#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "llm/fences.h"

namespace cudaforge {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr std::string_view kWhite = " \t\r\n";

Status BadReply(const std::string& what) { return Status::InvalidArgument("the reply " + what); }

Status CheckText(std::string_view reply, size_t max_bytes) {
  if (reply.size() > max_bytes) {
    return Status::Timeout("the reply has " + std::to_string(reply.size()) +
                           " bytes, over the limit of " + std::to_string(max_bytes));
  }
  return IsUtf8(reply) ? Status::Ok() : BadReply("is not UTF-8");
}

// Tracks JSON's strings and brackets in a text; ignores everything else.
class JsonScanner {
 public:
  // Takes the next character. Returns true outside of strings.
  bool Next(char c) {
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
      }
      return false;
    }
    if (c == '"') in_string_ = true;
    if (c == '{' || c == '[') ++depth_;
    if (c == '}' || c == ']') --depth_;
    return c != '"';
  }
  bool in_string() const { return in_string_; }
  bool escaped() const { return escaped_; }
  int depth() const { return depth_; }

 private:
  bool in_string_ = false;
  bool escaped_ = false;
  int depth_ = 0;
};

// The start of an object: a brace followed by a quotation mark, else the first empty pair of
// braces. Ignores braces in prose and code.
size_t ObjectStart(std::string_view text) {
  size_t empty = std::string_view::npos;
  for (size_t at = text.find('{'); at != std::string_view::npos; at = text.find('{', at + 1)) {
    const size_t next = text.find_first_not_of(kWhite, at + 1);
    if (next == std::string_view::npos) break;
    if (text[next] == '"') return at;
    if (text[next] == '}' && empty == std::string_view::npos) empty = at;
  }
  return empty;
}

// The object at the start of `text`, up to its closing bracket.
Result<std::string_view> BalancedObject(std::string_view text, int max_depth) {
  JsonScanner scanner;
  for (size_t i = 0; i < text.size(); ++i) {
    scanner.Next(text[i]);
    if (scanner.depth() > max_depth) {
      return BadReply("has JSON nested deeper than " + std::to_string(max_depth));
    }
    if (scanner.depth() == 0) return text.substr(0, i + 1);
  }
  return BadReply("has a JSON object that is not closed: was it cut off?");
}

// The part of the reply that should hold the object.
std::string_view ObjectRegion(std::string_view text) {
  if (BeginsAsObject(text)) return text;
  const std::vector<Fence> fences = FindFences(text);
  const Fence* chosen = nullptr;
  for (const Fence& fence : fences) {
    if (!fence.closed) continue;
    if (FirstWord(fence) == "json") return fence.body;
    if (chosen == nullptr && BeginsAsObject(fence.body)) chosen = &fence;
  }
  return chosen != nullptr ? chosen->body : text;
}

// Removes trailing commas, and escapes raw control characters in strings. nullopt: nothing to
// repair.
std::optional<std::string> Mend(std::string_view object) {
  std::string out;
  out.reserve(object.size() + object.size() / 8);
  JsonScanner scanner;
  size_t comma = std::string::npos;  // the position in `out` of a comma followed only by white
                                     // space
  bool mended = false;
  for (const char c : object) {
    const bool was_in_string = scanner.in_string();
    const bool was_escaped = scanner.escaped();
    scanner.Next(c);
    if (was_in_string) {
      const char* escape = c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t" : nullptr;
      if (escape != nullptr && !was_escaped) {
        out += escape;
        mended = true;
        continue;
      }
    } else if (c == ',') {
      comma = out.size();
    } else if ((c == '}' || c == ']') && comma != std::string::npos) {
      out[comma] = ' ';  // in place: erasing each would not be linear
      comma = std::string::npos;
      mended = true;
    } else if (kWhite.find(c) == std::string_view::npos) {
      comma = std::string::npos;
    }
    out += c;
  }
  return mended ? std::optional(std::move(out)) : std::nullopt;
}

}  // namespace

bool BeginsAsObject(std::string_view text) {
  const size_t at = text.find_first_not_of(kWhite);
  return at != std::string_view::npos && text[at] == '{';
}

std::vector<std::string_view> ObjectsIn(std::string_view text, int max_depth) {
  std::vector<std::string_view> objects;
  for (size_t at = text.find('{'); at != std::string_view::npos; at = text.find('{', at)) {
    const size_t next = text.find_first_not_of(kWhite, at + 1);
    if (next == std::string_view::npos) break;
    if (text[next] != '"') {
      ++at;
      continue;
    }
    const Result<std::string_view> object = BalancedObject(text.substr(at), max_depth);
    if (!object.ok()) break;
    objects.push_back(*object);
    at += object->size();
  }
  return objects;
}

Result<Json> ParseJsonReply(std::string_view reply, const JsonLimits& limits) {
  CF_RETURN_IF_ERROR(CheckText(reply, limits.max_bytes));
  if (reply.starts_with(kByteOrderMark)) reply.remove_prefix(kByteOrderMark.size());
  const std::string_view region = ObjectRegion(reply);
  const size_t start = ObjectStart(region);
  if (start == std::string_view::npos) return BadReply("has no JSON object");
  CF_ASSIGN_OR_RETURN(const std::string_view object,
                      BalancedObject(region.substr(start), limits.max_depth));
  Result<Json> value = ParseJson(object, limits);
  if (!value.ok()) {
    const std::optional<std::string> mended = Mend(object);
    if (mended.has_value()) {
      // Escapes lengthen the text. The size limit applies to the received text.
      value = ParseJson(*mended, {.max_bytes = mended->size(), .max_depth = limits.max_depth});
    }
  }
  if (!value.ok()) return BadReply("has malformed " + Printable(value.status().message(), 300));
  return value;
}

}  // namespace cudaforge
