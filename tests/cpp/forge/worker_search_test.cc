// The forge with the real worker, compiler and generators, on the CPU: only the checker is the
// test's own, because the one of verify needs libtorch.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "base/file.h"
#include "cache/kernel_store.h"
#include "forge/promotion.h"
#include "tests/cpp/forge/fakes.h"

namespace cudaforge {
namespace {

constexpr int64_t kRows = 16;
constexpr int64_t kColumns = 200;

OpSignature Softmax() {
  OpSignature signature;
  TensorSpec spec{DType::kFloat32, {kRows, kColumns}, {kColumns, 1}, 16};
  signature.inputs = {spec};
  Node node;
  node.op = "aten::_softmax";
  node.args = Json::array({Json{{"in", 0}}, -1, false});
  node.outputs = {spec};
  signature.nodes = {node};
  signature.outputs = {OutputRef{0, 0}};
  return signature;
}

WorkerOptions Options() {
  WorkerOptions options;
  options.executable = std::string(CUDAFORGE_BINARY_DIR) + "/cudaforge-worker";
  return options;
}

// Two sets of inputs, judged against softmax in double precision.
class SoftmaxChecker : public RegionChecker {
 public:
  SoftmaxChecker() {
    std::mt19937_64 random(1);
    for (float scale : {1.0f, 30.0f}) {
      std::normal_distribution<float> normal(0, scale);
      std::vector<float> values(kRows * kColumns);
      for (float& value : values) value = normal(random);
      std::string bytes(values.size() * sizeof(float), '\0');
      std::memcpy(bytes.data(), values.data(), bytes.size());
      sets_.push_back({"scale", {bytes}, {}});
      values_.push_back(std::move(values));
    }
  }
  size_t case_count() const override { return sets_.size(); }
  const InputSet& inputs(size_t i) const override { return sets_[i]; }
  Verdict Check(size_t i, std::span<const std::string> outputs) const override {
    Verdict verdict;
    std::vector<float> got(kRows * kColumns);
    if (outputs.size() != 1 || outputs[0].size() != got.size() * sizeof(float)) {
      verdict.kind = VerdictKind::kWrongShape;
      return verdict;
    }
    std::memcpy(got.data(), outputs[0].data(), outputs[0].size());
    for (int64_t row = 0; row < kRows; ++row) {
      const float* x = values_[i].data() + row * kColumns;
      const double top = *std::max_element(x, x + kColumns);
      double sum = 0;
      for (int64_t k = 0; k < kColumns; ++k) sum += std::exp(x[k] - top);
      for (int64_t k = 0; k < kColumns; ++k) {
        const double error =
            got[static_cast<size_t>(row * kColumns + k)] - std::exp(x[k] - top) / sum;
        if (!(std::abs(error) < 1e-6)) verdict.kind = VerdictKind::kWrongValues;
      }
    }
    return verdict;
  }
  Json Report() const override { return Json::object(); }

 private:
  std::vector<InputSet> sets_;
  std::vector<std::vector<float>> values_;
};

TEST(WorkerSearch, ForgesASoftmaxOnTheCpu) {
  auto target = MakeCpuTarget();
  if (!target.ok()) GTEST_SKIP() << target.status().ToString();
  WorkerClient worker(Options());
  const OpSignature signature = Softmax();
  const DeviceArch arch = (*target)->arch();
  SoftmaxChecker checker;
  LocalEvaluator evaluator(signature, worker, checker);
  auto outcome = SearchWalks(WalksFor({signature, arch}).value(), evaluator,
                             {.seconds = 60, .candidates = 3}, nullptr);
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  ASSERT_TRUE(outcome->best.has_value()) << outcome->reason;
  EXPECT_GT(outcome->best->ns, 0);

  // Stored and read by another store, the record holds the kernel that won.
  TempDir folder = TempDir::Create("cudaforge-forge").value();
  CacheRecord record = MakeNegativeRecord(signature, arch, *outcome, nullptr, {}, Json::object());
  auto store = OpenRocksKernelStore(folder.path() + "/cache", true).value();
  ASSERT_TRUE(store->Put(record).ok());
  Promotion promotion;
  promotion.promoted = true;
  promotion.speedup = {1.1, 1.2, 1.3};
  ASSERT_TRUE(
      store->Put(MakeWinnerRecord(signature, arch, *outcome, promotion, {}, Json::object())).ok());
  auto again = OpenRocksKernelStore(folder.path() + "/cache", false).value();
  auto found = again->Get(signature.Key(), arch.target);
  ASSERT_NE(found, nullptr);
  ASSERT_TRUE(found->has_kernel());
  auto candidate = Candidate::FromJson(ParseJson(found->variants[0].candidate).value());
  ASSERT_TRUE(candidate.ok()) << candidate.status().ToString();
  auto run = worker.Run(found->variants[0].binary, *candidate, signature, checker.inputs(1), {});
  ASSERT_TRUE(run.ok());
  EXPECT_TRUE(checker.Check(1, run->outputs).accepted());
}

// A candidate that crashes takes its worker along, not the search.
TEST(WorkerSearch, GoesOnAfterACrash) {
  class TwoCandidates : public TableSearch {
   public:
    TwoCandidates() : TableSearch(2) {}
    std::optional<Candidate> Next() override {
      auto candidate = TableSearch::Next();
      if (!candidate.has_value()) return candidate;
      const bool first = candidate->source.code == "0";
      candidate->source.code =
          "#include <cstdint>\n"
          "extern \"C\" void k(void* const* b, const int64_t*, const double*, int64_t begin, "
          "int64_t "
          "end) {\n"
          "  const float* x = static_cast<const float*>(b[0]);\n"
          "  float* y = static_cast<float*>(b[1]);\n" +
          std::string(first ? "  *reinterpret_cast<volatile int*>(8) = 1;\n" : "") +
          "  for (int64_t i = begin; i < end; ++i) y[i] = x[i] > 0 ? x[i] : 0;\n}\n";
      LaunchArg input, output;
      output.kind = LaunchArg::Kind::kOutput;
      candidate->plan.launches[0].args = {input, output};
      return candidate;
    }
  };
  class AnyAnswer : public TableChecker {
   public:
    AnyAnswer() : TableChecker(1) { set_ = {"zeros", {std::string(32, '\0')}, {}}; }
    const InputSet& inputs(size_t) const override { return set_; }
    Verdict Check(size_t, std::span<const std::string> outputs) const override {
      Verdict verdict;
      if (outputs[0] != std::string(32, '\0')) verdict.kind = VerdictKind::kWrongValues;
      return verdict;
    }

   private:
    InputSet set_;
  };
  if (!MakeCpuTarget().ok()) GTEST_SKIP() << "needs a host compiler";
  WorkerClient worker(Options());
  AnyAnswer checker;
  const OpSignature relu = ReluOfEight();
  LocalEvaluator evaluator(relu, worker, checker);
  std::vector<Walk> walks;
  walks.push_back({"two", std::make_unique<TwoCandidates>()});
  auto outcome = SearchWalks(std::move(walks), evaluator, {.seconds = 60}, nullptr);
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  ASSERT_EQ(outcome->trials.size(), 2u);
  EXPECT_EQ(outcome->trials[0].verdict.kind, VerdictKind::kCrashed);
  EXPECT_TRUE(outcome->best.has_value()) << outcome->trials[1].ToJson().dump();
  EXPECT_EQ(worker.started(), 2);
}

}  // namespace
}  // namespace cudaforge
