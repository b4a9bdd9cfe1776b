#include "base/json.h"

#include <gtest/gtest.h>

#include <limits>

namespace cudaforge {
namespace {

TEST(JsonTest, CanonicalSortsKeysAndDropsSpace) {
  const Result<Json> json = ParseJson(R"( { "b" : [1, 2.5, null], "a" : {"y": true, "x": "é"} } )");
  ASSERT_TRUE(json.ok()) << json.status().ToString();
  EXPECT_EQ(CanonicalJson(*json), R"({"a":{"x":"é","y":true},"b":[1,2.5,null]})");
}

TEST(JsonTest, RejectsHostileText) {
  const std::string deep = std::string(100000, '[');
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("{} x"), std::string(R"({"a":1,"a":2})"),
        std::string(R"({"a":{"b":1,"b":2}})"), std::string("[1e999]"), std::string("[NaN]"),
        std::string("\"\xff\xfe\""), deep, std::string("[1,]")}) {
    const Result<Json> json = ParseJson(text);
    ASSERT_FALSE(json.ok()) << text.substr(0, 40);
    EXPECT_EQ(json.status().code(), StatusCode::kInvalidArgument);
    EXPECT_LT(json.status().message().size(), 500u);
  }
}

TEST(JsonTest, ErrorsArePrintable) {
  const std::string key = std::string(79, 'k') + "\u00e9";  // cut in the middle of a character
  for (const std::string& text :
       {"{\"" + key + "\":1,\"" + key + "\":2}", std::string(R"({"\u001b[2J":1,"\u001b[2J":2})"),
        std::string("\"\xff\xfe\""), std::string("\xe9\x7f"), std::string("\"\x1b[2J\"")}) {
    const Result<Json> json = ParseJson(text);
    ASSERT_FALSE(json.ok()) << text;
    for (const char c : json.status().message()) EXPECT_TRUE(c >= 0x20 && c <= 0x7e) << int{c};
  }
}

TEST(JsonTest, KeepsLimits) {
  EXPECT_TRUE(ParseJson("[[1]]", {.max_bytes = 5, .max_depth = 2}).ok());
  EXPECT_FALSE(ParseJson("[[1]]", {.max_bytes = 4, .max_depth = 2}).ok());
  EXPECT_FALSE(ParseJson("[[1]]", {.max_bytes = 5, .max_depth = 1}).ok());
}

TEST(JsonTest, DuplicateKeyIsFoundDespiteEqualKeyElsewhere) {
  EXPECT_TRUE(ParseJson(R"({"a":{"k":1},"b":{"k":2}})").ok());
}

TEST(JsonTest, NonFiniteFloats) {
  EXPECT_EQ(FloatToJson(std::numeric_limits<double>::infinity()), Json({{"float", "inf"}}));
  EXPECT_EQ(FloatToJson(-std::numeric_limits<double>::infinity()), Json({{"float", "-inf"}}));
  EXPECT_EQ(FloatToJson(std::numeric_limits<double>::quiet_NaN()), Json({{"float", "nan"}}));
  EXPECT_EQ(FloatToJson(0.1).dump(), "0.1");
}

TEST(JsonTest, AMemberOrNull) {
  const Json object = {{"n", 1}, {"null", nullptr}};
  EXPECT_EQ(&MemberOrNull(object, "n"), &object["n"]);
  EXPECT_TRUE(MemberOrNull(object, "null").is_null());
  const Json* gone = &MemberOrNull(object, "gone");
  EXPECT_TRUE(gone->is_null());
  for (const Json& other : {Json(), Json::array({1}), Json("n"), Json(1)}) {
    EXPECT_EQ(&MemberOrNull(other, "n"), gone);
  }
}

TEST(JsonTest, FieldErrorsNameTheField) {
  const Json object = {{"n", 1}, {"s", "x"}, {"a", {1, "2"}}, {"u", UINT64_MAX}};
  EXPECT_EQ(*JsonInt(object, "n"), 1);
  EXPECT_EQ(*JsonString(object, "s"), "x");
  EXPECT_EQ(JsonInt(object, "gone").status().message(), "gone: missing");
  EXPECT_FALSE(JsonInt(object, "u").ok());
  EXPECT_FALSE(JsonInt(object, "s").ok());
  EXPECT_FALSE(JsonIntArray(object, "a").ok());
  EXPECT_FALSE(JsonBool(Json::array(), "n").ok());
}

}  // namespace
}  // namespace cudaforge
