#include "forge/prompts.h"

#include <algorithm>
#include <charconv>
#include <kainjow/mustache.hpp>
#include <limits>
#include <utility>

#include "base/sha256.h"
#include "base/text.h"
#include "forge/embedded.h"

namespace cudaforge {
namespace {

namespace mustache = kainjow::mustache;

constexpr std::string_view kPrompts = "prompts/";
constexpr std::string_view kParts = "prompts/parts/";
constexpr std::string_view kTemplate = ".mustache";
constexpr std::string_view kFirstLine = "{{! version ";
constexpr std::string_view kSystem = "--- system ---\n";
constexpr std::string_view kUser = "--- user ---\n";
constexpr std::string_view kAny = "any_";

// Size limits of values, in bytes; others are not cut.
constexpr std::pair<std::string_view, size_t> kLimits[] = {
    {"device", 3000},  {"evidence", 4000},    {"floor", 1000},      {"log", 12000},
    {"message", 2000}, {"profile", 8000},     {"derived", 2000},    {"resources", 2000},
    {"fault", 1000},   {"judge_issue", 1000}, {"judge_plan", 1000}, {"rival", 200},
    {"tried", 400},    {"hints", 2000}};  // per line

size_t LimitOf(std::string_view name) {
  for (const auto& [limited, bytes] : kLimits) {
    if (name == limited) return bytes;
  }
  return std::numeric_limits<size_t>::max();
}

// Keeps the start and end of long text: in a compiler's log, the first error and the summary.
std::string CutMiddle(const std::string& text, size_t limit) {
  if (text.size() <= limit) return text;
  size_t head = limit * 2 / 3;
  size_t tail = text.size() - (limit - head);
  const auto inside = [&](size_t at) { return (static_cast<unsigned char>(text[at]) >> 6) == 2; };
  while (head > 0 && inside(head)) --head;  // not inside a UTF-8 character
  while (tail < text.size() && inside(tail)) ++tail;
  return text.substr(0, head) + " [" + std::to_string(tail - head) + " bytes left out] " +
         text.substr(tail);
}

std::string OneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::replace(text.begin(), text.end(), '\r', ' ');
  return text;
}

std::string NumberText(const Json& value) {
  if (!value.is_number_float()) return LenientText(value);
  return Significant(value.get<double>(), 6);
}

void AppendLines(const std::string& name, const Json& value, std::string* text) {
  if (value.is_null()) return;
  if (value.is_object()) {
    for (const auto& [inner, item] : value.items()) {
      AppendLines(name.empty() ? inner : name + "." + inner, item, text);
    }
    return;
  }
  const std::string shown = value.is_string()   ? value.get<std::string>()
                            : value.is_number() ? NumberText(value)
                                                : LenientText(value);
  *text += name + ": " + shown + "\n";
}

// Strips line breaks at the end: templates add their own.
std::string TextOf(const Json& value) {
  std::string text;
  if (value.is_string()) {
    text = value.get<std::string>();
  } else if (value.is_object()) {
    AppendLines("", value, &text);
  } else if (value.is_number()) {
    text = NumberText(value);
  } else if (!value.empty() && value != Json(false)) {
    text = LenientText(value);
  }
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

// Empty text is `false`, so that a template's section {{#name}} is skipped.
mustache::data DataOf(const std::string& text) {
  return text.empty() ? mustache::data(false) : mustache::data(text);
}

// A heading above a list must appear once, so it tests `any_NAME` instead of the list.
void SetList(const std::string& name, const Json& items, mustache::data* data) {
  mustache::data list(mustache::data::type::list);
  const size_t first = items.size() > kMaxTried ? items.size() - kMaxTried : 0;
  for (size_t i = first; i < items.size(); ++i) {
    list << mustache::data(CutMiddle(OneLine(TextOf(items[i])), LimitOf(name)));
  }
  data->set(name, list);
  data->set(std::string(kAny) + name, !items.empty());
}

mustache::data ValuesOf(const Json& values, const std::vector<const Document*>& documents) {
  mustache::data data(mustache::data::type::object);
  for (const auto& [name, value] : values.items()) {
    if (name == "tried" || name == "hints") {
      SetList(name, value.is_array() ? value : Json::array(), &data);
      continue;
    }
    data.set(name, DataOf(CutMiddle(TextOf(value), LimitOf(name))));
  }
  std::string contract;
  mustache::data knowledge(mustache::data::type::list);
  for (const Document* document : documents) {
    CF_CHECK(document != nullptr) << "a document that does not exist";
    if (document->id.starts_with("contract/")) {
      contract += document->text;
    } else {
      knowledge << mustache::data(TextOf(document->text));
    }
  }
  data.set("contract", DataOf(TextOf(contract)));
  data.set("knowledge", knowledge);
  data.set(std::string(kAny) + "knowledge", knowledge.is_non_empty_list());
  // A text cannot contain its own hash without about 2^64 attempts.
  data.set("mark", Sha256Hex(LenientText(values)).substr(0, 16));
  return data;
}

// Looks up values for mustache, which would treat missing ones as empty.
class Values : public mustache::context<std::string> {
 public:
  Values(const mustache::data* data, const std::string& text)
      : mustache::context<std::string>(data), text_(text) {}

  const mustache::data* get(const std::string& name) const override {
    const mustache::data* found = mustache::context<std::string>::get(name);
    const bool optional = text_.find("{{#" + name + "}}") != std::string::npos;
    if (found == nullptr || (!optional && !found->is_string())) Miss(name);
    return found;
  }
  const mustache::data* get_partial(const std::string& name) const override {
    Miss("part " + name);  // parts were inserted before
    return nullptr;
  }
  const std::string& missing() const { return missing_; }

 private:
  void Miss(const std::string& name) const {
    if (missing_.empty()) missing_ = name.substr(name.starts_with(kAny) ? kAny.size() : 0);
  }

  const std::string& text_;
  mutable std::string missing_;
};

const EmbeddedText* FindText(const std::string& path) {
  for (const EmbeddedText& embedded : EmbeddedTexts()) {
    if (embedded.path == path) return &embedded;
  }
  return nullptr;
}

// Replaces tags on lines of their own by their parts: {{>region}}.
std::string WithParts(std::string text) {
  for (size_t at = text.find("{{>"); at != std::string::npos; at = text.find("{{>", at)) {
    const size_t end = text.find("}}\n", at);
    CF_CHECK(end != std::string::npos) << "a part's tag ends its line";
    const std::string name = text.substr(at + 3, end - at - 3);
    const EmbeddedText* part = FindText(std::string(kParts) + name + std::string(kTemplate));
    CF_CHECK(part != nullptr) << "no part of prompts is called " << name;
    text.replace(at, end + 3 - at, part->text);
  }
  return text;
}

struct Template {
  int version = 0;
  std::string system;  // empty: none
  std::string user;
};

Template ParseTemplate(const EmbeddedText& embedded) {
  const std::string text = WithParts(std::string(embedded.text));
  Template parsed;
  CF_CHECK(text.starts_with(kFirstLine)) << embedded.path << " states no version";
  std::from_chars(text.data() + kFirstLine.size(), text.data() + text.size(), parsed.version);
  const size_t system = text.find(kSystem);
  const size_t user = text.find(kUser);
  CF_CHECK(parsed.version > 0 && user != std::string::npos) << embedded.path;
  if (system != std::string::npos) {
    parsed.system = text.substr(system + kSystem.size(), user - system - kSystem.size());
  }
  parsed.user = text.substr(user + kUser.size());
  return parsed;
}

Result<std::string> Fill(const std::string& text, const mustache::data& data) {
  mustache::mustache filled(text);
  filled.set_custom_escape([](const std::string& value) { return value; });
  Values values(&data, text);
  std::string out = filled.render(values);
  CF_CHECK(filled.is_valid()) << filled.error_message();
  if (!values.missing().empty()) {
    return Status::InvalidArgument("the value \"" + values.missing() + "\" is missing");
  }
  return out;
}

}  // namespace

Result<Prompt> RenderPrompt(std::string_view name, const Json& values,
                            const std::vector<const Document*>& documents) {
  const std::string path = std::string(kPrompts) + std::string(name) + std::string(kTemplate);
  const EmbeddedText* embedded =
      name.find('/') == std::string_view::npos ? FindText(path) : nullptr;
  if (embedded == nullptr) return Status::NotFound("no prompt is called " + std::string(name));
  if (!values.is_object()) return Status::InvalidArgument("values of a prompt: expected an object");
  const Template parsed = ParseTemplate(*embedded);
  const mustache::data data = ValuesOf(values, documents);

  Prompt prompt;
  prompt.name = std::string(name);
  prompt.version = parsed.version;
  for (const Document* document : documents) prompt.documents.push_back(document->id);
  for (const auto& [author, text] :
       {std::pair(Speaker::kSystem, &parsed.system), std::pair(Speaker::kUser, &parsed.user)}) {
    if (text->empty()) continue;
    Result<std::string> filled = Fill(*text, data);
    if (!filled.ok()) {
      return Status::InvalidArgument("prompt " + prompt.name + ": " + filled.status().message());
    }
    prompt.messages.push_back({author, *std::move(filled)});
  }
  prompt.sha256 = Sha256Hex(CanonicalJson(ToJson(prompt.messages)));
  return prompt;
}

}  // namespace cudaforge
