#include "llm/retry.h"

#include <gtest/gtest.h>

namespace cudaforge {
namespace {

// A clock that only sleeps advance.
struct FakeTime {
  double now = 100;
  double random = 0.5;
  bool cancelled = false;
  std::vector<double> sleeps;
  RetryClock clock() {
    return {[this] { return now; }, [] { return 784111777.0; }, [this] { return random; },
            [this](double s) {
              sleeps.push_back(s);
              now += s;
              return !cancelled;
            }};
  }
};

Attempt Fault(const std::string& retry_after = "") {
  return {Status::Unavailable("busy"), true, retry_after};
}

TEST(RetryTest, WaitsLongerEachTimeWithJitter) {
  FakeTime time;
  int attempts = 0;
  const Status status = RunWithRetries(
      {6, 1, 5}, time.clock(), 1000, [] { return Fault(); }, &attempts);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("attempt 6"), std::string::npos) << status.message();
  EXPECT_EQ(attempts, 6);
  EXPECT_EQ(time.sleeps, (std::vector<double>{0.5, 1, 2, 2.5, 2.5}));
}

TEST(RetryTest, EndsAtSuccessAndAtPermanentErrors) {
  FakeTime time;
  int attempts = 0;
  int calls = 0;
  EXPECT_TRUE(
      RunWithRetries(
          {}, time.clock(), 1000, [&calls] { return ++calls < 3 ? Fault() : Attempt{}; }, &attempts)
          .ok());
  EXPECT_EQ(attempts, 3);
  attempts = 0;
  const Status refused = RunWithRetries(
      {}, time.clock(), 1000,
      [] {
        return Attempt{Status::InvalidArgument("no"), false, ""};
      },
      &attempts);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(attempts, 1);
}

TEST(RetryTest, HonoursRetryAfterWithinTheDeadline) {
  FakeTime time;
  int attempts = 0;
  const auto twice = [&attempts] { return attempts == 1 ? Fault("7") : Attempt{}; };
  EXPECT_TRUE(RunWithRetries({}, time.clock(), 1000, twice, &attempts).ok());
  EXPECT_EQ(time.sleeps, std::vector<double>{7});
  time = {};
  attempts = 0;
  const Status status = RunWithRetries(
      {}, time.clock(), 110, [] { return Fault("11"); }, &attempts);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("a wait of 11 s"), std::string::npos) << status.message();
  EXPECT_EQ(attempts, 1);
  EXPECT_TRUE(time.sleeps.empty());
}

TEST(RetryTest, EndsWhenCancelled) {
  FakeTime time;
  time.cancelled = true;
  int attempts = 0;
  EXPECT_EQ(RunWithRetries(
                {}, time.clock(), 1000, [] { return Fault(); }, &attempts)
                .code(),
            StatusCode::kCancelled);
  EXPECT_EQ(attempts, 1);
}

TEST(RetryTest, RealSleepIsInterrupted) {
  Cancel cancel;
  const RetryClock clock = RealClock(cancel);
  EXPECT_TRUE(clock.sleep(0.001));
  cancel.Set();
  EXPECT_FALSE(clock.sleep(1000));
  const double random = clock.random();
  EXPECT_TRUE(random >= 0 && random < 1);
}

TEST(RetryTest, ReadsRetryAfter) {
  const double now = 784111777;  // Sun, 06 Nov 1994 08:49:37 GMT
  EXPECT_EQ(ParseRetryAfter("120", now), 120);
  EXPECT_EQ(ParseRetryAfter(" 0 ", now), 0);
  EXPECT_EQ(ParseRetryAfter("99999999999999999999999", now), 1e9);
  EXPECT_EQ(ParseRetryAfter("Sun, 06 Nov 1994 08:50:37 GMT", now), 60);
  EXPECT_EQ(ParseRetryAfter("Sun, 06 Nov 1994 08:00:00 GMT", now), 0);
  for (const char* bad :
       {"", "soon", "-1", "1.5", "Sun, 06 Nov 1994", "Sun, 06 Foo 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 GMT or later"}) {
    EXPECT_EQ(ParseRetryAfter(bad, now), std::nullopt) << bad;
  }
}

TEST(RetryTest, KnowsTransientStatuses) {
  for (const int status : {408, 409, 429, 500, 502, 503, 529}) {
    EXPECT_TRUE(IsTransientHttpStatus(status)) << status;
  }
  for (const int status : {0, 200, 301, 400, 401, 403, 404, 600}) {
    EXPECT_FALSE(IsTransientHttpStatus(status)) << status;
  }
}

}  // namespace
}  // namespace cudaforge
