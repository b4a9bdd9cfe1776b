#include "llm/chat_protocol.h"

#include <gtest/gtest.h>

namespace cudaforge {
namespace {

TEST(ErrorTextTest, ExtractsErrorMessages) {
  EXPECT_EQ(ErrorText(R"({"error": {"message": "no such model"}})", ""), "no such model");
  EXPECT_EQ(ErrorText(R"({"error": "down"})", ""), "down");
  EXPECT_EQ(ErrorText(R"({"message": "gone"})", ""), "gone");
  EXPECT_EQ(ErrorText(R"({"detail": [1]})", ""), R"({"detail":[1]})");
  EXPECT_EQ(ErrorText("<html>\n oops </html>", ""), "<html> oops </html>");
  EXPECT_EQ(ErrorText("", ""), "");
}

TEST(ErrorTextTest, LimitDoesNotRevealPartOfAKey) {
  const std::string key = "sk-0123456789";
  for (size_t before = 480; before < 505; ++before) {
    const std::string text = ErrorText(std::string(before, 'x') + key + "yyyyyyyyyyyyyyyyy", key);
    EXPECT_LE(text.size(), 500u);
    EXPECT_EQ(text.find("sk-0"), std::string::npos) << text;
  }
}

TEST(ReplyBuilderTest, BoundsTheTextAndRequiresAnEnd) {
  ReplyLimits limits;
  limits.max_reply_bytes = 4;
  std::string told;
  const TextSink on_text = [&told](std::string_view text) { told.append(text); };
  ReplyBuilder builder(limits, "", on_text);
  EXPECT_TRUE(builder.Append("1234").ok());
  EXPECT_EQ(builder.Append("5").code(), StatusCode::kTimeout);
  EXPECT_EQ(told, "1234");
  EXPECT_EQ(builder.Finish().status().code(), StatusCode::kCorruption);
  builder.done = true;
  EXPECT_EQ(builder.Finish()->content, "1234");
}

}  // namespace
}  // namespace cudaforge
