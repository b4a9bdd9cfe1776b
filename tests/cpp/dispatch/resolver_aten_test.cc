#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "dispatch/resolver.h"
#include "tests/cpp/dispatch/fake_region.h"
#include "tests/cpp/forked.h"

namespace cudaforge {
namespace {

using testing::LaunchLog;
using testing::NegRegion;
using testing::NegWinner;
using testing::Region;

class ResolverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    resolver_.SetLoader(nullptr);
    resolver_.SetWarningSink([this](const std::string& warning) { warnings_.push_back(warning); });
    resolver_.ResetStats();
  }
  void TearDown() override {
    resolver_.SetLoader(nullptr);
    resolver_.SetWarningSink(nullptr);
  }

  RegionEntry* Resolve(const Region& region) {
    return resolver_.Resolve(region.id, region.text, -1).value();
  }

  Resolver& resolver_ = Resolver::Get();
  std::shared_ptr<LaunchLog> log_ = std::make_shared<LaunchLog>();
  std::vector<std::string> warnings_;
};

TEST_F(ResolverTest, MakesOneEntryForEachRegionAndDevice) {
  const Region region = NegRegion({3, 1});
  EXPECT_EQ(resolver_.Find(region.id, -1), nullptr);
  RegionEntry* entry = Resolve(region);
  EXPECT_EQ(Resolve(region), entry);
  EXPECT_EQ(resolver_.Find(region.id, -1), entry);
  EXPECT_EQ(resolver_.Find(region.id, 0), entry);
  EXPECT_EQ(resolver_.Find(region.id, 1), nullptr);
  EXPECT_NE(resolver_.Resolve(region.id, region.text, 1).value(), entry);
  EXPECT_EQ(entry->key, region.signature.Key());
  EXPECT_EQ(entry->winner.load(), nullptr);
}

TEST_F(ResolverTest, RefusesCollidingAndMalformedCalls) {
  const Region a = NegRegion({3, 2});
  const Region b = NegRegion({3, 3});
  auto code = [&](int64_t id, const std::string& text) {
    return resolver_.Resolve(id, text, -1).status().code();
  };
  EXPECT_EQ(code(a.id, b.text), StatusCode::kInvalidArgument);  // first seen
  EXPECT_EQ(resolver_.Find(a.id, -1), nullptr);
  Resolve(a);
  EXPECT_EQ(code(a.id, b.text), StatusCode::kInvalidArgument);  // and later
  EXPECT_EQ(code(b.id, "{"), StatusCode::kInvalidArgument);
  EXPECT_EQ(resolver_.Find(b.id, -1), nullptr);
}

TEST_F(ResolverTest, RunsTheLoaderOnce) {
  const Region region = NegRegion({3, 4});
  int asked = 0;
  resolver_.SetLoader([&](const RegionEntry& entry) -> Result<std::unique_ptr<Winner>> {
    ++asked;
    EXPECT_EQ(entry.key, region.signature.Key());
    EXPECT_EQ(entry.device_index, 0);
    return NegWinner(12, 0, log_);
  });
  // During stream capture an entry is made, but nothing is loaded.
  RegionEntry* entry = resolver_.Resolve(region.id, region.text, -1, /*may_load=*/false).value();
  EXPECT_EQ(asked, 0);
  EXPECT_TRUE(resolver_.WouldLoad(*entry));
  for (int i = 0; i < 3; ++i) Resolve(region);
  EXPECT_EQ(asked, 1);
  EXPECT_FALSE(resolver_.WouldLoad(*entry));
  EXPECT_NE(entry->winner.load(), nullptr);
}

TEST_F(ResolverTest, KernelForEagerCallsIsNoWinner) {
  const Region region = NegRegion({3, 14});
  bool compiled = false;
  resolver_.SetLoader([&](const RegionEntry&) -> Result<std::unique_ptr<Winner>> {
    std::unique_ptr<Winner> found = NegWinner(42, 0, log_);
    found->compiled = compiled;
    return found;
  });
  RegionEntry* entry = Resolve(region);
  EXPECT_EQ(entry->winner.load(), nullptr);
  const Winner* const for_eager = entry->ForEager();
  EXPECT_NE(for_eager, nullptr);
  compiled = true;
  resolver_.RetryMissing();
  ASSERT_TRUE(resolver_.WouldLoad(*entry)) << "there may be a winner by now";
  Resolve(region);
  EXPECT_NE(entry->winner.load(), nullptr);
  EXPECT_EQ(entry->ForEager(), entry->winner.load());
  EXPECT_NE(entry->ForEager(), for_eager);
  resolver_.Quarantine(entry, "a test");
  EXPECT_EQ(entry->ForEager(), nullptr);
}

TEST_F(ResolverTest, RetryDuringALoadLoadsTwice) {
  const Region region = NegRegion({3, 15});
  int asked = 0;
  resolver_.SetLoader([&](const RegionEntry&) -> Result<std::unique_ptr<Winner>> {
    if (++asked > 1) return NegWinner(45, 0, log_);
    resolver_.RetryMissing();  // a winner is stored now
    return std::unique_ptr<Winner>();
  });
  EXPECT_EQ(Resolve(region)->winner.load(), nullptr);
  for (int i = 0; i < 2; ++i) EXPECT_NE(Resolve(region)->winner.load(), nullptr);
  EXPECT_EQ(asked, 2);
}

TEST_F(ResolverTest, LoaderFailureWarnsOnce) {
  const Region refused = NegRegion({3, 5});
  const Region thrown = NegRegion({3, 6});
  resolver_.SetLoader([&](const RegionEntry& entry) -> Result<std::unique_ptr<Winner>> {
    if (entry.id == thrown.id) throw std::runtime_error("no store");
    return Status::Corruption("bad record");
  });
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Resolve(refused)->winner.load(), nullptr);
    EXPECT_EQ(Resolve(thrown)->winner.load(), nullptr);
  }
  ASSERT_EQ(warnings_.size(), 2u);
  EXPECT_NE(warnings_[0].find("bad record"), std::string::npos);
  EXPECT_NE(warnings_[1].find("no store"), std::string::npos);
}

TEST_F(ResolverTest, InstallSwapsAndQuarantineIsFinal) {
  const Region region = NegRegion({3, 7});
  RegionEntry* entry = Resolve(region);
  resolver_.Install(entry, NegWinner(21, 0, log_, {100, 1}, {{Constraint::Kind::kAligned, 0, 32}}));
  const Winner* first = entry->winner.load();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->alignment_masks, std::vector<uintptr_t>{31});
  EXPECT_EQ(first->scratch_offsets, (std::vector<int64_t>{0, 256}));
  EXPECT_EQ(first->scratch_bytes, 512);
  resolver_.Install(entry, NegWinner(21, 1, log_));
  EXPECT_NE(entry->winner.load(), first);
  resolver_.Install(entry, nullptr);
  EXPECT_EQ(entry->winner.load(), nullptr);
  resolver_.Install(entry, NegWinner(21, 1, log_));
  resolver_.Quarantine(entry, "it hung");
  resolver_.Quarantine(entry, "it hung again");
  resolver_.Install(entry, NegWinner(21, 1, log_));
  EXPECT_EQ(entry->winner.load(), nullptr);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("it hung"), std::string::npos);
}

TEST_F(ResolverTest, InstallChecksItsArguments) {
  RegionEntry* entry = Resolve(NegRegion({3, 8}));
  EXPECT_THROW(resolver_.Install(entry, std::make_unique<Winner>()), CheckError);
  EXPECT_THROW(
      resolver_.Install(entry, NegWinner(24, 0, log_, {}, {{Constraint::Kind::kAligned, 1, 16}})),
      CheckError);
  EXPECT_THROW(
      resolver_.Install(entry, NegWinner(24, 0, log_, {}, {{Constraint::Kind::kAligned, 0, 24}})),
      CheckError);
  EXPECT_EQ(entry->winner.load(), nullptr);
}

TEST_F(ResolverTest, ConcurrentResolveInstallAndFind) {
  constexpr int kThreads = 8;
  constexpr int kRegions = 200;  // enough to grow the table several times
  std::vector<Region> regions;
  for (int i = 0; i < kRegions; ++i) regions.push_back(NegRegion({7, 100 + i}));
  std::atomic<int> loads{0};
  std::atomic<int> wrong{0};
  resolver_.SetLoader([&](const RegionEntry&) -> Result<std::unique_ptr<Winner>> {
    loads.fetch_add(1);
    return std::unique_ptr<Winner>();
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int k = 0; k < kRegions; ++k) {
        const Region& region = regions[static_cast<size_t>((k * 7 + t * 13) % kRegions)];
        RegionEntry* entry = resolver_.Resolve(region.id, region.text, -1).value();
        if (entry->key != region.signature.Key()) wrong.fetch_add(1);
        resolver_.Install(entry, NegWinner(700, static_cast<float>(t), log_));
        if (resolver_.Find(region.id, -1) != entry) wrong.fetch_add(1);
        if (entry->winner.load()->executable == nullptr) wrong.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(loads.load(), kRegions);
}

TEST_F(ResolverTest, StatsCountAndReset) {
  RegionEntry* entry = Resolve(NegRegion({3, 9}));
  resolver_.Install(entry, NegWinner(27, 0, log_));
  entry->hits = 4;
  entry->unserved = 2;
  entry->saved_ns = 10;
  resolver_.CountFallback(entry, Fallback::kStrides);
  const Json stats = resolver_.Stats();
  EXPECT_EQ(stats["hits"], 4);
  EXPECT_EQ(stats["unserved"], 2);
  EXPECT_EQ(stats["fallbacks"], Json({{"strides", 1}}));
  EXPECT_EQ(stats["saved_ns"], 40.0);
  const Json& region = stats["regions"].back();
  EXPECT_EQ(region["key"], entry->key);
  EXPECT_EQ(region["device"], "cpu");
  EXPECT_TRUE(region["quarantined"].is_null());
  resolver_.ResetStats();
  EXPECT_EQ(resolver_.Stats()["hits"], 0);
  EXPECT_EQ(resolver_.Stats()["fallbacks"], Json::object());
}

TEST_F(ResolverTest, WorksInAForkedChild) {
  const Region before = NegRegion({3, 10});
  const Region after = NegRegion({3, 11});
  Resolve(before)->hits = 5;
  EXPECT_EQ(InForkedChild([&] {
              RegionEntry* entry = resolver_.Find(before.id, -1);
              entry->hits.fetch_add(1);
              auto made = resolver_.Resolve(after.id, after.text, -1);
              const bool good = made.ok() && resolver_.Find(after.id, -1) == *made &&
                                resolver_.Stats()["hits"] == 6;
              return good ? 0 : 1;
            }),
            0);
  EXPECT_EQ(resolver_.Find(after.id, -1), nullptr);
}

}  // namespace
}  // namespace cudaforge
