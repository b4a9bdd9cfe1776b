#include <gtest/gtest.h>

#include "forge/agent/coder.h"
#include "forge/agent/device_code.h"
#include "generators/tiles/device_texts.h"

namespace cudaforge {
namespace {

std::string Expanded(const std::string& source) {
  const Result<std::string> text = WithDeviceCode(source);
  EXPECT_TRUE(text.ok()) << text.status().ToString();
  return text.ok() ? *text : "";
}

TEST(DeviceCode, TakesThePlaceOfTheLine) {
  const std::string barrier = tiles::DeviceText({"device/barrier.cuh"});
  EXPECT_EQ(Expanded("int a;\n  #  include \"device/barrier.cuh\"  // why\nint b;\n"),
            "int a;\n" + barrier + "int b;\n");
}

TEST(DeviceCode, ComesOnce) {
  const std::string copy = tiles::DeviceText({"device/bulk_copy.cuh"});
  EXPECT_EQ(
      Expanded("#include \"device/bulk_copy.cuh\"\n#include \"device/bulk_copy.cuh\"\nint b;"),
      copy + "int b;");
}

TEST(DeviceCode, LeavesAllElse) {
  for (const char* source : {"", "\n", "#include <cuda_fp16.h>\nint a;", "#include \"other.h\"",
                             "#include \"device/barrier", "const char* s = \"device/barrier.cuh\";",
                             "#define include \"device/barrier.cuh\""}) {
    EXPECT_EQ(Expanded(source), source);
  }
}

TEST(DeviceCode, UnknownFilesAreNamed) {
  for (const char* path : {"device/gone.cuh", "device/../secret", "device/split.cuh"}) {
    const std::string message =
        WithDeviceCode("#include \"" + std::string(path) + "\"\n").status().message();
    EXPECT_NE(message.find(path), std::string::npos) << message;
    EXPECT_NE(message.find("device/wgmma.cuh"), std::string::npos) << message;
  }
}

TEST(DeviceCode, IsInTheCandidateOfAReply) {
  const std::string reply =
      "```json\n{\"launches\": [{\"kernel\": \"k\", \"args\": [], \"grid\": [1, 1, 1], \"block\": "
      "[32, 1, 1]}]}\n```\n```cuda\n#include \"device/barrier.cuh\"\n```\n";
  const auto candidate = ParseCoderReply(reply, Language::kCuda, "agent:x");
  ASSERT_TRUE(candidate.ok()) << candidate.status().ToString();
  EXPECT_NE(candidate->source.code.find("mbarrier.init"), std::string::npos);
}

}  // namespace
}  // namespace cudaforge
