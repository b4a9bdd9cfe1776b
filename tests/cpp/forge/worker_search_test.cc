// The forge with the real worker, compiler and generators on the CPU. Only the reference is the
// test's own, because verify's needs libtorch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/file.h"
#include "cache/kernel_store.h"
#include "forge/promotion.h"
#include "tests/cpp/forge/fakes.h"
#include "tests/cpp/forge/real_worker.h"

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

// Two sets of inputs, judged against softmax in double precision.
HostSets SoftmaxSets() {
  std::mt19937_64 random(1);
  std::vector<std::vector<float>> sets;
  for (float scale : {1.0f, 30.0f}) {
    std::normal_distribution<float> normal(0, scale);
    sets.emplace_back(kRows * kColumns);
    for (float& value : sets.back()) value = normal(random);
  }
  return {sets, [sets](size_t set, const float* output) {
            for (int64_t row = 0; row < kRows; ++row) {
              const float* x = sets[set].data() + row * kColumns;
              const double top = *std::max_element(x, x + kColumns);
              double sum = 0;
              for (int64_t k = 0; k < kColumns; ++k) sum += std::exp(x[k] - top);
              for (int64_t k = 0; k < kColumns; ++k) {
                const double error = output[row * kColumns + k] - std::exp(x[k] - top) / sum;
                if (!(std::abs(error) < 1e-6)) return false;
              }
            }
            return true;
          }};
}

TEST(WorkerSearch, ForgesASoftmaxOnTheCpu) {
  auto target = MakeCpuTarget();
  if (!target.ok()) GTEST_SKIP() << target.status().ToString();
  const OpSignature signature = Softmax();
  const DeviceArch arch = (*target)->arch();
  HostSets sets = SoftmaxSets();
  RealWorker real(signature, sets);
  LocalEvaluator evaluator(signature, real.worker, *real.verifier);
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
  ASSERT_TRUE(real.verifier->Load(found->variants[0].binary, *candidate).value().accepted());
  EXPECT_TRUE(real.verifier->Run(1).value().accepted());
}

// A crash of a candidate ends neither its worker nor the search.
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
  if (!MakeCpuTarget().ok()) GTEST_SKIP() << "needs a host compiler";
  HostSets sets({std::vector<float>(8)}, [](size_t, const float* output) {
    return std::all_of(output, output + 8, [](float y) { return y == 0; });
  });
  const OpSignature relu = ReluOfEight();
  RealWorker real(relu, sets);
  LocalEvaluator evaluator(relu, real.worker, *real.verifier);
  std::vector<Walk> walks;
  walks.push_back({"two", std::make_unique<TwoCandidates>()});
  auto outcome = SearchWalks(std::move(walks), evaluator, {.seconds = 60}, nullptr);
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  ASSERT_EQ(outcome->trials.size(), 2u);
  EXPECT_EQ(outcome->trials[0].verdict.kind, VerdictKind::kMemoryFault);
  EXPECT_TRUE(outcome->best.has_value()) << outcome->trials[1].ToJson().dump();
  EXPECT_EQ(real.worker.started(), 1) << "candidates run in processes of their own";
}

}  // namespace
}  // namespace cudaforge
