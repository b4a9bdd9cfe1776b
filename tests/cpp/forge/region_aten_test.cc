// Forges a region and stores its winner without Python.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "forge/region.h"
#include "generators/generator.h"
#include "signature/from_aten_region.h"
#include "target/target.h"
#include "verify/evaluator.h"
#include "verify/verifiers.h"

namespace cudaforge {
namespace {

constexpr int64_t kRows = 64, kColumns = 96;

OpSignature Softmax(bool doubled) {
  OpSignature signature;
  const TensorSpec spec{DType::kFloat32, {kRows, kColumns}, {kColumns, 1}, 16};
  signature.inputs = {spec};
  Node softmax;
  softmax.op = "aten::_softmax";
  softmax.args = Json::array({Json{{"in", 0}}, -1, false});
  softmax.outputs = {spec};
  signature.nodes = {softmax};
  if (doubled) {
    Node mul;
    mul.op = "aten::mul.Tensor";
    mul.args = Json::array({Json{{"node", 0}, {"out", 0}}, 2});
    mul.outputs = {spec};
    signature.nodes.push_back(mul);
  }
  signature.outputs = {OutputRef{doubled ? 1 : 0, 0}};
  return NormalizeAten(signature).value();
}

// A host without Python: kernels are launched directly, ATen runs the region, and a table of times
// decides races.
class PlainHost : public ForgeHost {
 public:
  PlainHost(Target* target, OpSignature region) : target_(target), region_(std::move(region)) {}

  void Tell(const Json& event) override { events.push_back(event); }
  void GoOn() override { ++steps; }
  bool RaceWasDisturbed() override { return disturbed; }
  Result<std::unique_ptr<OnTrial>> Try(const ProvenKernel& kernel) override {
    CF_ASSIGN_OR_RETURN(executable_, target_->Load(kernel.binary, kernel.candidate, region_));
    return std::unique_ptr<OnTrial>(std::make_unique<Trial>(&served));
  }
  Status MakeInputs(const OpSignature&, int sets) override {
    inputs_.clear();
    for (int i = 0; i < sets; ++i) inputs_.push_back(at::randn({kRows, kColumns}));
    return Status::Ok();
  }
  Contestant Winner(const OpSignature&) override {
    return {"winner", [this](int64_t sample) {
              now_ns_ = ns.at("winner");
              at::Tensor x = Input(sample), y = at::empty_like(x);
              std::vector<std::string> scratch;
              std::vector<void*> places;
              for (const int64_t bytes : executable_->scratch_bytes()) {
                scratch.emplace_back(static_cast<size_t>(bytes), '\0');
              }
              for (std::string& one : scratch) places.push_back(one.data());
              void* const in[] = {x.data_ptr()};
              void* const out[] = {y.data_ptr()};
              CF_RETURN_IF_ERROR(executable_->Launch(in, out, places, target_->launch_context()));
              right = right && at::allclose(y, x.softmax(-1), 1e-5, 1e-6);
              return Status::Ok();
            }};
  }
  Contestant Aten(const OpSignature& region) override {
    const std::shared_ptr<RegionProgram> program = RegionProgram::Create(region).value();
    return {"aten", [this, program](int64_t sample) {
              now_ns_ = ns.at("aten");
              program->RunStrided({Input(sample)});
              return Status::Ok();
            }};
  }
  Inductor ByInductor(const OpSignature&, const std::string& part, double) override {
    Inductor made;
    made.in_time = in_time;
    made.waited_s = waited_s;
    if (!part.empty()) {
      made.contestant = Contestant{"inductor", [this](int64_t) {
                                     now_ns_ = ns.at("inside");
                                     return Status::Ok();
                                   }};
    }
    return made;
  }
  SampleClock Clock() override {
    return [this](int64_t, const std::function<Status()>& work) -> Result<double> {
      CF_RETURN_IF_ERROR(work());
      return now_ns_;
    };
  }

  std::map<std::string, double> ns = {{"winner", 1000}, {"aten", 2000}, {"inside", 2100}};
  bool in_time = true, right = true, disturbed = false;
  double waited_s = 0;
  int steps = 0;
  std::vector<Json> events;
  std::vector<std::string> served;  // keys

 private:
  class Trial : public OnTrial {
   public:
    explicit Trial(std::vector<std::string>* served) : served_(served) {}
    void Serve(const CacheRecord& record) override { served_->push_back(record.key); }

   private:
    std::vector<std::string>* const served_;
  };
  at::Tensor Input(int64_t sample) { return inputs_[static_cast<size_t>(sample) % inputs_.size()]; }

  Target* const target_;
  const OpSignature region_;
  std::unique_ptr<Executable> executable_;
  std::vector<at::Tensor> inputs_;
  double now_ns_ = 0;
};

class RegionForgeTest : public testing::Test {
 protected:
  void SetUp() override {
    auto target = MakeCpuTarget();
    if (!target.ok()) GTEST_SKIP() << target.status().ToString();
    target_ = *std::move(target);
    request_.task = {Softmax(false), target_->arch()};
    request_.candidates = 2;
    workshop_.versions = {{"torch", "any"}, {"verifier", kVerifierVersion}};
    const std::string programs = CUDAFORGE_BINARY_DIR;
    verifiers_.emplace(VerifierOptions{.executable = programs + "/cudaforge-verifier",
                                       .worker = programs + "/cudaforge-worker",
                                       .library_path = "",
                                       .cxx = "",
                                       .cuda_search_paths = {},
                                       .compilers = CompilersOfThisMachine});
    workshop_.open = [this](auto&&... asked) { return verifiers_->Open(asked...); };
    workshop_.store = OpenRocksKernelStore(folder_.path() + "/cache", true).value();
    host_.emplace(target_.get(), request_.task.region);
  }
  Forged Run() {
    auto done = ForgeRegion(request_, workshop_, *host_);
    EXPECT_TRUE(done.ok()) << done.status().ToString();
    return std::move(done).value();
  }

  const TempDir folder_ = TempDir::Create("cudaforge-region").value();
  std::unique_ptr<Target> target_;
  RegionRequest request_;
  std::optional<Verifiers> verifiers_;
  Workshop workshop_;
  std::optional<PlainHost> host_;
};

TEST_F(RegionForgeTest, FirstCandidatesCompileBeforeTheVerifierOpens) {
  std::vector<std::string> ahead;
  workshop_.compile_ahead = [&](const Candidate& candidate, const DeviceArch& arch) {
    EXPECT_EQ(arch.target, target_->arch().target);
    ahead.push_back(candidate.source.code);
  };
  workshop_.open = [&](auto&&... asked) {
    EXPECT_GE(ahead.size(), 2u);
    return verifiers_->Open(asked...);
  };
  const Forged done = Run();
  ASSERT_TRUE(done.record.has_value() && done.record->has_kernel());
  EXPECT_NE(std::set<std::string>(ahead.begin(), ahead.end()).size(), 1u);
  const Json best = ParseJson(done.record->For()->candidate).value();
  EXPECT_EQ(std::count(ahead.begin(), ahead.end(), best["code"].get<std::string>()), 1)
      << "of two, both are ahead";
}

TEST_F(RegionForgeTest, StoresAWinnerWithoutPython) {
  const Forged done = Run();
  ASSERT_TRUE(done.record.has_value() && done.stored);
  EXPECT_TRUE(done.record->has_kernel()) << done.record->provenance;
  EXPECT_TRUE(done.record->Serves().compiled);
  EXPECT_EQ(done.record->doubtful, 0);
  EXPECT_TRUE(host_->right);
  const std::string key = request_.task.region.Key();
  EXPECT_EQ(host_->served, std::vector<std::string>{key});
  EXPECT_GT(host_->steps, 1);

  // Another process finds it and its lineage.
  workshop_.store.reset();
  const auto store = OpenRocksKernelStore(folder_.path() + "/cache", false).value();
  const auto record = store->Get(key, target_->arch().target);
  ASSERT_NE(record, nullptr);
  EXPECT_TRUE(record->has_kernel());
  EXPECT_EQ(store->Lineage(key, target_->arch().target).size(), 2u);
}

// A kernel proven on another device, torch or verifier is proven and raced here, without a search.
TEST_F(RegionForgeTest, KernelFromElsewhereIsProvenFirst) {
  workshop_.versions["device"] = "one device";
  const Forged first = Run();
  ASSERT_TRUE(first.record->has_kernel());
  const std::string key = request_.task.region.Key(), arch = target_->arch().target;
  const size_t trials = workshop_.store->Lineage(key, arch).size();
  workshop_.versions["device"] = "another device";
  const Forged again = Run();
  ASSERT_TRUE(again.record->has_kernel() && again.stored);
  EXPECT_EQ(again.record->versions["device"], "another device");
  EXPECT_EQ(again.record->variants[0].candidate, first.record->variants[0].candidate);
  EXPECT_EQ(workshop_.store->Lineage(key, arch).size(), trials + 1);
  EXPECT_EQ(host_->served, (std::vector<std::string>{key, key}));

  // If it does not win any more, a search follows.
  workshop_.versions["device"] = "a third device";
  host_->ns["winner"] = 3000;
  EXPECT_FALSE(Run().record->has_kernel());
  EXPECT_EQ(workshop_.store->Lineage(key, arch).size(), trials + 1 + trials);
}

TEST_F(RegionForgeTest, ADisturbedRaceIsDoubtful) {
  host_->disturbed = true;
  EXPECT_GT(Run().record->doubtful, 0);
}

TEST_F(RegionForgeTest, SlowerKernelIsANegativeEntry) {
  host_->ns["winner"] = 3000;
  const Forged done = Run();
  EXPECT_FALSE(done.record->has_kernel());
  EXPECT_FALSE(done.record->RanOutOfTime());
  EXPECT_TRUE(host_->served.empty());
}

TEST_F(RegionForgeTest, WithoutTimeForInductorThereIsNoRace) {
  host_->in_time = false;
  const Forged done = Run();
  EXPECT_FALSE(done.record->has_kernel());
  EXPECT_TRUE(done.record->RanOutOfTime());
  EXPECT_EQ(ParseJson(done.record->timing).value(), Json::object());
  EXPECT_TRUE(host_->served.empty());
}

TEST_F(RegionForgeTest, WaitingIsNotChargedToTheRegion) {
  request_.budget_s = 60;
  host_->waited_s = -59.9;  // no time is left
  EXPECT_TRUE(Run().record->RanOutOfTime());
  host_->waited_s = 1000;
  EXPECT_TRUE(Run().record->has_kernel());
}

TEST_F(RegionForgeTest, PartMustAlsoWinInsideItsRegion) {
  request_.within = Softmax(true);
  Forged done = Run();
  EXPECT_TRUE(done.record->has_kernel()) << "eager calls are served by it";
  EXPECT_FALSE(done.record->Serves().compiled);
  EXPECT_TRUE(done.record->Serves().eager);
  host_->ns["inside"] = 500;
  done = Run();
  EXPECT_TRUE(done.record->Serves().compiled) << done.record->race();
}

TEST(SearchSeconds, LeavesTimeForTheRaces) {
  EXPECT_DOUBLE_EQ(SearchSeconds(30), 23);
  EXPECT_DOUBLE_EQ(SearchSeconds(2), 0.6);
}

}  // namespace
}  // namespace cudaforge
