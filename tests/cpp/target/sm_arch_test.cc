#include "target/cuda/sm_arch.h"

#include <gtest/gtest.h>

namespace cudaforge {
namespace {

TEST(SmArch, OfADevice) {
  EXPECT_EQ(ArchOf(8, 0), "sm_80");
  EXPECT_EQ(ArchOf(8, 9), "sm_89");
  EXPECT_EQ(ArchOf(9, 0), "sm_90a");
  EXPECT_EQ(ArchOf(10, 0), "sm_100a");
  EXPECT_EQ(ArchOf(12, 0), "sm_120");
}

TEST(SmArch, IsParsed) {
  EXPECT_EQ(ParseSm("sm_80").value(), 80);
  EXPECT_EQ(ParseSm("sm_90a").value(), 90);
  EXPECT_EQ(ParseSm("sm_100f").value(), 100);
  EXPECT_EQ(ParseSm("sm_999").value(), 999);
}

TEST(SmArch, OtherTextIsRefused) {
  for (const char* arch : {"", "sm_", "sm_a", "90a", "sm_90b", "sm_90aa", "sm_-90", "sm_+90",
                           "sm_ 90", "sm_80 -I/", "compute_80", "sm_99999999999999"}) {
    const auto parsed = ParseSm(arch);
    ASSERT_FALSE(parsed.ok()) << arch;
    EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument) << arch;
    EXPECT_EQ(parsed.status().message(),
              "'" + std::string(arch) + "' is no architecture; expected sm_80, sm_90a, ...");
  }
}

}  // namespace
}  // namespace cudaforge
