#include <gtest/gtest.h>

#include "base/file.h"
#include "runtime/runtime.h"
#include "tests/cpp/verify/region_aten.h"

namespace cudaforge {
namespace {

OpSignature Softmax(int64_t rows) {
  const TensorSpec spec = F32({rows, 96});
  const Json args = Json::array({In(0), -1, false});
  return NormalizeAten(Region({spec}, "aten::_softmax", args, {spec})).value();
}

// The kernel is always twice as fast as ATen.
class Host : public ForgeHost {
 public:
  void Tell(const Json&) override {}
  Result<std::unique_ptr<OnTrial>> Try(const ProvenKernel& kernel) override {
    return Runtime::Get().Try(region, 0, kernel);
  }
  Status MakeInputs(const OpSignature&, int) override { return Status::Ok(); }
  Contestant Winner(const OpSignature&) override { return Takes("winner", 1000); }
  Contestant Aten(const OpSignature&) override { return Takes("aten", 2000); }
  Inductor ByInductor(const OpSignature&, const std::string&, double) override { return {}; }
  SampleClock Clock() override {
    return [this](int64_t, const std::function<Status()>& work) -> Result<double> {
      CF_RETURN_IF_ERROR(work());
      return ns_;
    };
  }

  OpSignature region;

 private:
  Contestant Takes(const std::string& name, double ns) {
    return {name, [this, ns](int64_t) {
              ns_ = ns;
              return Status::Ok();
            }};
  }
  double ns_ = 0;
};

class RuntimeTest : public testing::Test {
 protected:
  static Runtime& runtime() { return Runtime::Get(); }
  static void SetUpTestSuite() { runtime().Configure({}, CUDAFORGE_BINARY_DIR); }
  void SetUp() override {
    const auto target = runtime().TargetFor(DeviceType::kCpu, 0);
    if (!target.ok()) GTEST_SKIP() << target.status().ToString();
    arch_ = (*target)->arch();
    ASSERT_TRUE(runtime().UseCache(folder_.path() + "/cache").ok());
  }
  void TearDown() override { ASSERT_TRUE(runtime().UseCache(folder_.path() + "/other").ok()); }

  static RegionEntry* Resolve(const OpSignature& region) {
    return Resolver::Get().Resolve(RegionId(region.Key()), region.Canonical(), 0).value();
  }
  // The length of the wanted list after a call of this region.
  size_t WantedAfter(const RegionEntry& entry) {
    WantedWriter writer([](const Status& status) { ADD_FAILURE() << status.ToString(); });
    runtime().AddToWantedList(entry, arch_.target, &writer);
    writer.Flush();
    return runtime().store()->Wanted("").size();
  }
  Forged Forge(const OpSignature& region) {
    Host host;
    host.region = region;
    RegionRequest request;
    request.task = {region, arch_};
    request.candidates = 1;
    auto done =
        ForgeRegion(request, runtime().WorkshopFor(runtime().store(), request.task.arch), host);
    EXPECT_TRUE(done.ok()) << done.status().ToString();
    return std::move(done).value();
  }

  const TempDir folder_ = TempDir::Create("cudaforge-runtime").value();
  DeviceArch arch_;
};

TEST_F(RuntimeTest, ForgedKernelIsServedAndLeavesTheWantedList) {
  const OpSignature region = Softmax(64);
  RegionEntry* const entry = Resolve(region);
  EXPECT_EQ(entry->winner.load(), nullptr);
  EXPECT_EQ(WantedAfter(*entry), 1u);
  EXPECT_TRUE(Forge(region).stored);
  EXPECT_NE(entry->winner.load(), nullptr);
  EXPECT_NE(entry->ForEager(), nullptr);
  EXPECT_DOUBLE_EQ(entry->saved_ns, 1000);
  EXPECT_EQ(WantedAfter(*entry), 0u);
}

TEST_F(RuntimeTest, StoredWinnerIsServedAtFirstCall) {
  const OpSignature region = Softmax(32);
  const CacheRecord record = *Forge(region).record;
  // The same kernel under the key of a region that is new to this process.
  const OpSignature other = Softmax(48);
  CacheRecord stored = record;
  stored.key = other.Key();
  stored.signature = other.Canonical();
  ASSERT_TRUE(runtime().store()->Put(stored).ok());
  EXPECT_NE(Resolve(other)->winner.load(), nullptr);
  // From another torch: a miss.
  const OpSignature third = Softmax(56);
  stored.key = third.Key();
  stored.signature = third.Canonical();
  stored.versions["torch"] = "0.1";
  ASSERT_TRUE(runtime().store()->Put(stored).ok());
  EXPECT_EQ(Resolve(third)->winner.load(), nullptr);
  EXPECT_FALSE(runtime().IsCurrent(stored));
  EXPECT_EQ(WantedAfter(*Resolve(third)), 1u);
}

TEST_F(RuntimeTest, DoubtfulRecordIsServedAndRetestedAfterADay) {
  const CacheRecord record = *Forge(Softmax(40)).record;
  EXPECT_FALSE(runtime().IsStale(record));
  const OpSignature other = Softmax(44);  // as another process would find it
  CacheRecord stored = record;
  stored.key = other.Key();
  stored.signature = other.Canonical();
  stored.doubtful = static_cast<int64_t>(std::time(nullptr));
  ASSERT_TRUE(runtime().store()->Put(stored).ok());
  EXPECT_NE(Resolve(other)->winner.load(), nullptr);
  EXPECT_TRUE(runtime().IsCurrent(stored));
  EXPECT_FALSE(runtime().IsStale(stored));
  stored.doubtful -= 24 * 60 * 60;
  EXPECT_TRUE(runtime().IsCurrent(stored));
  EXPECT_TRUE(runtime().IsStale(stored));
  runtime().NoteDoubt(stored);
  EXPECT_FALSE(runtime().IsStale(stored));
}

}  // namespace
}  // namespace cudaforge
