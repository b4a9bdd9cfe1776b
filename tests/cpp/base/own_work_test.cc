#include "base/own_work.h"

#include <gtest/gtest.h>

#include <thread>

namespace cudaforge {
namespace {

TEST(OwnWork, IsOfOneThreadAndNests) {
  EXPECT_FALSE(OwnWork::InForce());
  {
    const OwnWork outer;
    {
      const OwnWork inner;
      EXPECT_TRUE(OwnWork::InForce());
    }
    EXPECT_TRUE(OwnWork::InForce());
    bool elsewhere = true;
    std::thread([&] { elsewhere = OwnWork::InForce(); }).join();
    EXPECT_FALSE(elsewhere);
  }
  EXPECT_FALSE(OwnWork::InForce());
}

}  // namespace
}  // namespace cudaforge
