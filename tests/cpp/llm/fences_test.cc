#include "llm/fences.h"

#include <gtest/gtest.h>

namespace cudaforge {
namespace {

TEST(FencesTest, FindsBlocks) {
  const auto fences = FindFences(
      "text\n```cuda title\ncode\n  ```\nmore ``` text\n~~~~\n```\n~~~\n~~~~~  \n   "
      "````cpp\r\nx\r\n```\n````\n");
  ASSERT_EQ(fences.size(), 3u);
  EXPECT_EQ(fences[0].info, "cuda title");
  EXPECT_EQ(fences[0].body, "code\n");
  EXPECT_EQ(fences[1].info, "");
  EXPECT_EQ(fences[1].body, "```\n~~~\n");
  EXPECT_EQ(fences[2].info, "cpp");
  EXPECT_EQ(fences[2].body, "x\r\n```\n");
  for (const Fence& fence : fences) EXPECT_TRUE(fence.closed);
}

TEST(FencesTest, TheFirstWordNamesTheLanguage) {
  for (const char* info : {"cuda", "CUDA title", "cuda{.numbers}", "Cuda:k.cu", "cuda\tx"}) {
    EXPECT_EQ(FirstWord({info, "", true}), "cuda") << info;
  }
  EXPECT_EQ(FirstWord({"", "", true}), "");
}

TEST(FencesTest, DetectsTruncatedBlocks) {
  const auto fences = FindFences("```\na\n```\n```cuda\nint x;");
  ASSERT_EQ(fences.size(), 2u);
  EXPECT_TRUE(fences[0].closed);
  EXPECT_FALSE(fences[1].closed);
  EXPECT_EQ(fences[1].body, "int x;");
  const auto bare = FindFences("```cuda");
  ASSERT_EQ(bare.size(), 1u);
  EXPECT_FALSE(bare[0].closed);
}

TEST(FencesTest, IgnoresOtherText) {
  EXPECT_TRUE(FindFences("").empty());
  EXPECT_TRUE(FindFences("``\nx\n``\n").empty());
  EXPECT_TRUE(FindFences("    ```\nindented code\n").empty());
  EXPECT_TRUE(FindFences("```inline``` code\n").empty());
  EXPECT_TRUE(FindFences("use ```x```\n").empty());
}

}  // namespace
}  // namespace cudaforge
