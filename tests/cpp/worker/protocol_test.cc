#include "worker/protocol.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

namespace cudaforge {
namespace {

struct Pair {
  UniqueFd a, b;
  Pair() {
    int ends[2];
    CF_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    a = UniqueFd(ends[0]);
    b = UniqueFd(ends[1]);
  }
  void Raw(std::string_view bytes) {
    ASSERT_EQ(write(a.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
};

std::string Header(std::string_view magic, uint32_t size, uint32_t fds) {
  std::string header(magic);
  for (uint32_t value : {size, fds}) {
    for (int i = 0; i < 4; ++i) header += static_cast<char>((value >> (8 * i)) & 255);
  }
  return header;
}

TEST(Protocol, RoundTripWithDescriptors) {
  Pair pair;
  Frame frame;
  frame.body = {{"command", "hello"}, {"n", 3}};
  frame.fds.push_back(*MakeMemFile(std::string_view("binary")));
  frame.fds.push_back(*MakeMemFile(std::string_view("")));
  ASSERT_TRUE(SendFrame(pair.a.get(), frame, 1000).ok());
  auto got = ReceiveFrame(pair.b.get(), 1000);
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(got->body, frame.body);
  ASSERT_EQ(got->fds.size(), 2u);
  EXPECT_EQ(*ReadMemFile(got->fds[0].get(), 100), "binary");
  EXPECT_EQ(*ReadMemFile(got->fds[1].get(), 100), "");
}

TEST(Protocol, FramesKeepTheirDescriptors) {
  Pair pair;
  for (const char* text : {"one", "two"}) {
    Frame frame;
    frame.body = {{"text", text}};
    frame.fds.push_back(*MakeMemFile(std::string_view(text)));
    ASSERT_TRUE(SendFrame(pair.a.get(), frame, 1000).ok());
  }
  for (const char* text : {"one", "two"}) {
    auto got = ReceiveFrame(pair.b.get(), 1000);
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(got->body["text"], text);
    EXPECT_EQ(*ReadMemFile(got->fds.at(0).get(), 100), text);
  }
}

TEST(Protocol, LargeFrameThroughASmallSocket) {
  Pair pair;
  Frame frame;
  frame.body = {{"text", std::string(8 << 20, 'x')}};
  std::thread sender([&] { EXPECT_TRUE(SendFrame(pair.a.get(), frame, 10'000).ok()); });
  auto got = ReceiveFrame(pair.b.get(), 10'000);
  sender.join();
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->body, frame.body);
}

TEST(Protocol, InvalidUtf8IsReplacedNotThrown) {
  Pair pair;
  Frame frame;
  frame.body = {{"log", "bad \xff byte"}};
  ASSERT_TRUE(SendFrame(pair.a.get(), frame, 1000).ok());
  EXPECT_TRUE(ReceiveFrame(pair.b.get(), 1000).ok());
}

TEST(Protocol, BrokenFramesAreCorruption) {
  const std::string deep = std::string(100, '[') + std::string(100, ']');
  const std::string cases[] = {
      Header("CFW2", 2, 0) + "{}",            // another magic
      "PASS PASS PASS PASS",                  // no frame at all
      Header("CFW1", kMaxFrameBytes + 1, 0),  // oversized
      Header("CFW1", 0xffffffff, 0),
      Header("CFW1", 2, kMaxFrameFds + 1) + "{}",
      Header("CFW1", 2, 1) + "{}",   // announces a missing descriptor
      Header("CFW1", 2, 0) + "[]",   // no object
      Header("CFW1", 3, 0) + "{} ",  // only white space is wrong: still an object
      Header("CFW1", 5, 0) + "{\"a\":",
      Header("CFW1", 0, 0),
      Header("CFW1", 13, 0) + "{\"a\":1,\"a\":2}",
      Header("CFW1", static_cast<uint32_t>(deep.size()), 0) + deep};
  for (const std::string& bytes : cases) {
    Pair pair;
    pair.Raw(bytes);
    const auto got = ReceiveFrame(pair.b.get(), 1000);
    if (bytes.ends_with("{} ")) {
      EXPECT_TRUE(got.ok());
      continue;
    }
    ASSERT_FALSE(got.ok()) << bytes;
    EXPECT_EQ(got.status().code(), StatusCode::kCorruption) << got.status().ToString();
  }
}

TEST(Protocol, TooManyDescriptorsAreClosedAndRefused) {
  Pair pair;
  int fds[kMaxFrameFds + 8];
  for (int& fd : fds) fd = pair.a.get();
  const std::string bytes = Header("CFW1", 2, 1) + "{}";
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(fds))] = {};
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(fds));
  std::memcpy(CMSG_DATA(header), fds, sizeof(fds));
  ASSERT_GT(sendmsg(pair.a.get(), &message, 0), 0);
  const int before = dup(0);
  close(before);
  EXPECT_EQ(ReceiveFrame(pair.b.get(), 1000).status().code(), StatusCode::kCorruption);
  const int after = dup(0);
  close(after);
  EXPECT_EQ(before, after) << "descriptors leaked";
}

TEST(Protocol, PeerDeathIsIoError) {
  for (const std::string& begun :
       {std::string(), std::string("CFW"), Header("CFW1", 100, 0) + "{"}) {
    Pair pair;
    pair.Raw(begun);
    pair.a.Reset();
    EXPECT_EQ(ReceiveFrame(pair.b.get(), 1000).status().code(), StatusCode::kIoError);
  }
  Pair pair;
  pair.a.Reset();
  EXPECT_EQ(SendFrame(pair.b.get(), Frame{{{"a", 1}}, {}}, 1000).code(), StatusCode::kIoError);
}

TEST(Protocol, DeadlineCountsForTheWholeFrame) {
  Pair pair;
  EXPECT_EQ(ReceiveFrame(pair.b.get(), 20).status().code(), StatusCode::kTimeout);
  // Single bytes do not extend it.
  const std::string bytes = Header("CFW1", 1000, 0) + std::string(500, ' ');
  std::atomic<bool> stop = false;
  std::thread drip([&] {
    for (size_t i = 0; i < bytes.size() && !stop; ++i) {
      if (write(pair.a.get(), &bytes[i], 1) != 1) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  EXPECT_EQ(ReceiveFrame(pair.b.get(), 100).status().code(), StatusCode::kTimeout);
  stop = true;
  drip.join();
  // A peer that does not read cannot block for ever.
  Frame large;
  large.body = {{"text", std::string(8 << 20, 'x')}};
  EXPECT_EQ(SendFrame(pair.b.get(), large, 50).code(), StatusCode::kTimeout);
}

TEST(Protocol, OwnLimitsAreChecked) {
  Pair pair;
  Frame frame;
  frame.body = {{"text", std::string(kMaxFrameBytes, 'x')}};
  EXPECT_EQ(SendFrame(pair.a.get(), frame, 1000).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cudaforge
