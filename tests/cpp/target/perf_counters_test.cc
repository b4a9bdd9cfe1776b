#include "target/cpu/perf_counters.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <set>
#include <thread>

namespace cudaforge {
namespace {

const std::set<std::string> kNames = {"cycles", "instructions", "cache_references", "cache_misses",
                                      "branch_misses"};

Status Nothing() { return Status::Ok(); }

// The data of a counter: value, nanoseconds enabled, nanoseconds counting.
Result<UniqueFd> Counter(uint64_t value, uint64_t enabled, uint64_t running) {
  UniqueFd fd(memfd_create("counter", MFD_CLOEXEC));
  const uint64_t words[] = {value, enabled, running};
  EXPECT_EQ(pwrite(fd.get(), words, sizeof(words), 0), static_cast<ssize_t>(sizeof(words)));
  return fd;
}

TEST(PerfCounters, CountsOrReturnsANote) {
  int calls = 0;
  const auto counters = CountPerf(Nothing, [&] {
    ++calls;
    volatile int sum = 0;
    for (int i = 0; i < 100'000; ++i) sum = sum + i;
    return Status::Ok();
  });
  ASSERT_TRUE(counters.ok()) << counters.status().ToString();
  EXPECT_EQ(counters->metrics.size() == kNames.size(), counters->note.empty()) << counters->note;
  for (const auto& [name, count] : counters->metrics.items()) {
    EXPECT_TRUE(kNames.contains(name)) << name;
    EXPECT_GE(count.get<double>(), 0);
  }
  EXPECT_GE(calls, static_cast<int>(counters->metrics.size()));
  if (counters->metrics.contains("instructions")) {
    EXPECT_GT(counters->metrics["instructions"].get<double>(), 100'000);
  }
}

TEST(PerfCounters, SumOverAllThreadsAndScale) {
  std::set<pid_t> seen;
  const auto counters = CountPerf(Nothing, Nothing, [&](uint64_t, pid_t thread) {
    // This thread was counted for half its time; the others slept.
    seen.insert(thread);
    return thread == gettid() ? Counter(1000, 10, 5) : Counter(7, 0, 0);
  });
  ASSERT_TRUE(counters.ok());
  EXPECT_EQ(counters->note, "");
  EXPECT_EQ(counters->metrics.size(), kNames.size());
  for (const std::string& name : kNames) EXPECT_EQ(counters->metrics[name], 2000.0) << name;
  EXPECT_TRUE(seen.contains(gettid()));
}

TEST(PerfCounters, ExistingThreadsAreCounted) {
  std::set<pid_t> seen;
  pid_t other = 0;
  std::thread([&] {
    other = gettid();
    std::thread([&] {  // `other` has run for some time: it waits in join
      const auto counters = CountPerf(Nothing, Nothing, [&](uint64_t, pid_t thread) {
        seen.insert(thread);
        return Counter(1, 1, 1);
      });
      EXPECT_TRUE(counters.ok());
    })
        .join();
  }).join();
  EXPECT_TRUE(seen.contains(other));
}

TEST(PerfCounters, RefusalsAreANote) {
  int calls = 0;
  const auto work = [&] {
    ++calls;
    return Status::Ok();
  };
  const auto none = CountPerf(Nothing, work, [](uint64_t, pid_t) -> Result<UniqueFd> {
    return Status::Unavailable("not here");
  });
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->metrics.empty());
  EXPECT_NE(none->note.find("not here"), std::string::npos);
  EXPECT_EQ(calls, 0);
  const auto some = CountPerf(Nothing, work, [](uint64_t event, pid_t) -> Result<UniqueFd> {
    if (event == 0) return Status::Unavailable("not here");
    return Counter(3, event == 1 ? 9 : 1, event == 1 ? 0 : 1);
  });
  ASSERT_TRUE(some.ok());
  EXPECT_EQ(some->metrics.size(), kNames.size() - 2);
  EXPECT_NE(some->note.find("cycles, instructions"), std::string::npos) << some->note;
}

TEST(PerfCounters, EndedThreadsAreIgnored) {
  const auto counters = CountPerf(Nothing, Nothing, [](uint64_t, pid_t) -> Result<UniqueFd> {
    return Status::NotFound("gone");
  });
  ASSERT_TRUE(counters.ok());
  EXPECT_EQ(counters->metrics["cycles"], 0.0);
}

TEST(PerfCounters, FailedWorkIsAnError) {
  const auto open = [](uint64_t, pid_t) { return Counter(1, 1, 1); };
  const auto fail = [] { return Status::Internal("no"); };
  EXPECT_EQ(CountPerf(Nothing, fail, open).status().code(), StatusCode::kInternal);
  EXPECT_EQ(CountPerf(fail, Nothing, open).status().code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace cudaforge
