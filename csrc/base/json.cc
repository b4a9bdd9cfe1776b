#include "base/json.h"

#include <locale.h>

#include <cmath>

#include "base/text.h"

namespace cudaforge {
namespace {

constexpr size_t kMaxError = 1000;  // characters

// Makes this thread use the C locale: nlohmann's parser reads numbers with strtod.
class ClassicNumbers {
 public:
  ClassicNumbers() : before_(uselocale(Classic())) {}
  ClassicNumbers(const ClassicNumbers&) = delete;
  ClassicNumbers& operator=(const ClassicNumbers&) = delete;
  ~ClassicNumbers() { uselocale(before_); }

 private:
  static locale_t Classic() {
    static const locale_t classic = newlocale(LC_ALL_MASK, "C", nullptr);
    return classic;
  }

  locale_t before_;
};

// Builds a document event by event, to check depth and duplicate keys before memory is used for
// them.
class BoundedBuilder : public nlohmann::json_sax<Json> {
 public:
  BoundedBuilder(Json* root, int max_depth) : root_(root), max_depth_(max_depth) {}

  bool null() override { return Add(nullptr); }
  bool boolean(bool v) override { return Add(v); }
  bool number_integer(number_integer_t v) override { return Add(v); }
  bool number_unsigned(number_unsigned_t v) override { return Add(v); }
  bool number_float(number_float_t v, const string_t&) override {
    return std::isfinite(v) ? Add(v) : Fail("a number that is not finite");
  }
  bool string(string_t& v) override { return Add(std::move(v)); }
  bool binary(binary_t&) override { return Fail("binary data"); }
  bool start_object(std::size_t) override { return Open(Json::object()); }
  bool start_array(std::size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& v) override {
    const auto [place, is_new] =
        stack_.back()->get_ref<Json::object_t&>().try_emplace(std::move(v));
    if (!is_new) return Fail("duplicate key \"" + place->first.substr(0, 80) + "\"");
    value_ = &place->second;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    return Fail("malformed at byte " + std::to_string(position) + ": " + error.what());
  }
  const std::string& error() const { return error_; }

 private:
  Json* Place(Json value) {
    if (stack_.empty()) {
      *root_ = std::move(value);
      return root_;
    }
    Json& top = *stack_.back();
    if (top.is_array()) {
      top.push_back(std::move(value));
      return &top.back();
    }
    *value_ = std::move(value);
    return value_;
  }
  bool Add(Json value) {
    Place(std::move(value));
    return true;
  }
  bool Open(Json value) {
    if (static_cast<int>(stack_.size()) >= max_depth_) {
      return Fail("nested deeper than " + std::to_string(max_depth_));
    }
    stack_.push_back(Place(std::move(value)));
    return true;
  }
  bool Close() {
    stack_.pop_back();
    return true;
  }
  bool Fail(std::string_view message) {
    if (!error_.empty()) return false;
    error_ = Printable(message, kMaxError);  // it may quote any bytes of the document
    return false;
  }

  Json* root_;
  int max_depth_;
  std::vector<Json*> stack_;  // addresses stay valid: a container grows only while it is on top
  Json* value_ = nullptr;     // of the key that was read last
  std::string error_;
};

Status Expected(std::string_view field, std::string_view what) {
  return Status::InvalidArgument(std::string(field) + ": expected " + std::string(what));
}

}  // namespace

Result<Json> ParseJson(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return Status::InvalidArgument("JSON of " + std::to_string(text.size()) +
                                   " bytes is over the limit of " +
                                   std::to_string(limits.max_bytes));
  }
  Json root;
  const ClassicNumbers classic;
  BoundedBuilder builder(&root, limits.max_depth);
  try {
    if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
      return Status::InvalidArgument("JSON: " + builder.error());
    }
  } catch (const std::exception& error) {
    return Status::InvalidArgument(std::string("JSON: ") + error.what());
  }
  return root;
}

Json JsonOrNull(std::string_view text) {
  Result<Json> json = ParseJson(text);
  return json.ok() ? std::move(json).value() : Json();
}

std::string CanonicalJson(const Json& value) {
  try {
    return value.dump();
  } catch (const nlohmann::json::exception& error) {
    CF_CHECK(false) << error.what();
  }
  return {};
}

std::string LenientText(const Json& value, bool ascii) {
  return value.dump(-1, ' ', ascii, Json::error_handler_t::replace);
}

Json LenientCopy(const Json& value) {
  const ClassicNumbers classic;
  return Json::parse(LenientText(value));
}

Json FloatToJson(double value) {
  if (std::isfinite(value)) return value;
  if (std::isnan(value)) return {{"float", "nan"}};
  return {{"float", value > 0 ? "inf" : "-inf"}};
}

const Json& MemberOrNull(const Json& object, const char* field) {
  static const Json* const null = new Json;
  if (!object.is_object()) return *null;
  const auto it = object.find(field);
  return it == object.end() ? *null : *it;
}

Result<Json> JsonField(const Json& object, std::string_view field) {
  if (!object.is_object()) return Expected(field, "to be inside an object");
  auto it = object.find(std::string(field));
  if (it == object.end()) return Status::InvalidArgument(std::string(field) + ": missing");
  return *it;
}

Result<int64_t> JsonInt(const Json& object, std::string_view field) {
  CF_ASSIGN_OR_RETURN(Json value, JsonField(object, field));
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) {
    return Expected(field, "an integer of 64 bits");
  }
  if (!value.is_number_integer()) return Expected(field, "an integer");
  return value.get<int64_t>();
}

Result<double> JsonDouble(const Json& object, std::string_view field) {
  CF_ASSIGN_OR_RETURN(Json value, JsonField(object, field));
  if (!value.is_number()) return Expected(field, "a number");
  return value.get<double>();
}

Result<bool> JsonBool(const Json& object, std::string_view field) {
  CF_ASSIGN_OR_RETURN(Json value, JsonField(object, field));
  if (!value.is_boolean()) return Expected(field, "true or false");
  return value.get<bool>();
}

Result<std::string> JsonString(const Json& object, std::string_view field) {
  CF_ASSIGN_OR_RETURN(Json value, JsonField(object, field));
  if (!value.is_string()) return Expected(field, "a string");
  return value.get<std::string>();
}

Result<std::vector<int64_t>> JsonIntArray(const Json& object, std::string_view field) {
  CF_ASSIGN_OR_RETURN(Json value, JsonField(object, field));
  if (!value.is_array()) return Expected(field, "an array of integers");
  std::vector<int64_t> out;
  for (const Json& item : value) {
    if (!item.is_number_integer()) return Expected(field, "an array of integers");
    if (item.is_number_unsigned() && item.get<uint64_t>() > INT64_MAX) {
      return Expected(field, "an array of 64-bit integers");
    }
    out.push_back(item.get<int64_t>());
  }
  return out;
}

}  // namespace cudaforge
