#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

namespace cudaforge {
namespace {

TEST(Parallel, EveryElementOnce) {
  for (int64_t n : {0, 1, 7, 8, 1000}) {
    std::vector<std::atomic<int>> seen(static_cast<size_t>(n));
    std::atomic<int64_t> chunks{0};
    ParallelChunks(n, 8, [&](int64_t chunk, int64_t begin, int64_t end) {
      EXPECT_EQ(begin, chunk * 8);
      EXPECT_LE(end - begin, 8);
      for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
      ++chunks;
    });
    for (const auto& count : seen) EXPECT_EQ(count, 1);
    EXPECT_EQ(chunks, ChunkCount(n, 8));
  }
}

TEST(Parallel, ExceptionsReachTheCaller) {
  EXPECT_THROW(ParallelChunks(100, 1,
                              [](int64_t chunk, int64_t, int64_t) {
                                if (chunk == 50) throw std::runtime_error("no");
                              }),
               std::runtime_error);
}

TEST(Parallel, EqualComparesEveryByte) {
  const std::string a(9 << 20, 'a');
  EXPECT_TRUE(ParallelEqual(a.data(), a.data(), a.size()));
  EXPECT_TRUE(ParallelEqual(a.data(), nullptr, 0));
  for (size_t at : {size_t{0}, size_t{4 << 20}, a.size() - 1}) {
    std::string b = a;
    b[at] = 'b';
    EXPECT_FALSE(ParallelEqual(a.data(), b.data(), a.size()));
  }
}

}  // namespace
}  // namespace cudaforge
