#include "llm/sse.h"

#include <gtest/gtest.h>

namespace cudaforge {
namespace {

// "name|data" of each event of `text`, given in pieces of `size` bytes.
std::vector<std::string> EventsOf(std::string_view text, size_t size) {
  SseParser parser(1 << 16);
  std::vector<std::string> events;
  const SseParser::Sink sink = [&events](const SseEvent& event) {
    events.push_back(event.name + "|" + event.data);
    return Status::Ok();
  };
  for (size_t at = 0; at < text.size(); at += size) {
    EXPECT_TRUE(parser.Feed(text.substr(at, size), sink).ok());
  }
  EXPECT_TRUE(parser.Finish(sink).ok());
  return events;
}

TEST(SseTest, ReadsSplitEvents) {
  const std::string text =
      "\xef\xbb\xbf"
      ": a comment\n\n"
      "data: one\n\n"
      "event: name\r\ndata: two\r\ndata:three\r\nid: 7\r\n\r\n"
      "data: caf\xc3\xa9 \xf0\x9f\x98\x80\r\r"
      "event: without data\n\n"
      "data\n\n"
      "data: the last, unfinished";
  const std::vector<std::string> expected = {
      "|one", "name|two\nthree", "|caf\xc3\xa9 \xf0\x9f\x98\x80", "|", "|the last, unfinished"};
  for (size_t size = 1; size <= text.size(); ++size) EXPECT_EQ(EventsOf(text, size), expected);
}

TEST(SseTest, BoundsAnEvent) {
  const SseParser::Sink sink = [](const SseEvent&) { return Status::Ok(); };
  SseParser one_line(1000);
  EXPECT_TRUE(one_line.Feed(std::string(1000, 'x'), sink).ok());
  EXPECT_EQ(one_line.Feed("x", sink).code(), StatusCode::kTimeout);
  SseParser many_lines(1000);
  Status status;
  for (int i = 0; i < 1000 && status.ok(); ++i) status = many_lines.Feed("data: x\n", sink);
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  SseParser many_events(1000);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(many_events.Feed("data: x\n\n", sink).ok());
}

TEST(SseTest, StopsAtTheSinksError) {
  SseParser parser(1000);
  int calls = 0;
  const Status status = parser.Feed("data: 1\n\ndata: 2\n\n", [&calls](const SseEvent&) {
    ++calls;
    return Status::Corruption("no");
  });
  EXPECT_EQ(status.code(), StatusCode::kCorruption);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace cudaforge
