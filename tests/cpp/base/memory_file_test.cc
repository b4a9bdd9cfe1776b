#include "base/memory_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace cudaforge {
namespace {

TEST(MemFile, SizesAreSealed) {
  const UniqueFd fd = *MakeMemFile(int64_t{100});
  EXPECT_NE(ftruncate(fd.get(), 50), 0);
  EXPECT_NE(ftruncate(fd.get(), 200), 0);
  ASSERT_TRUE(WriteMemFileAt(fd.get(), 98, "ab", 2).ok());
  EXPECT_FALSE(WriteMemFileAt(fd.get(), 99, "ab", 2).ok());
  EXPECT_EQ(ReadMemFile(fd.get(), 99).status().code(), StatusCode::kCorruption);
  char bytes[4];
  EXPECT_EQ(ReadMemFileAt(fd.get(), 98, bytes, 4).code(), StatusCode::kCorruption);
  const UniqueFd fixed = *MakeMemFile(std::string_view("abc"));
  EXPECT_FALSE(WriteMemFileAt(fixed.get(), 0, "x", 1).ok());
}

TEST(MemFile, OtherKindsOfFilesAreRefused) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const UniqueFd in(ends[0]), out(ends[1]);
  EXPECT_EQ(ReadMemFile(in.get(), 100).status().code(), StatusCode::kCorruption);
  EXPECT_FALSE(ReadMemFile(-1, 100).ok());
}

}  // namespace
}  // namespace cudaforge
