// The examples of the contract documents are what they claim to be: accepted by the verifier.
#include <gtest/gtest.h>

#include "target/cuda/driver_api.h"
#include "target/cuda/search_paths.h"
#include "target/target.h"
#include "tests/cpp/forge/contract_example.h"
#include "verify/checker.h"
#include "verify/local_evaluator.h"
#include "worker/worker_client.h"

namespace cudaforge {
namespace {

void ExpectAccepted(Language language) {
  const DeviceType device = language == Language::kCuda ? DeviceType::kCuda : DeviceType::kCpu;
  const OpSignature signature = ExampleRegion(device);
  const auto checker = RegionChecker::Create(signature, 0, 20260101);
  ASSERT_TRUE(checker.ok()) << checker.status().ToString();
  WorkerOptions options;
  options.executable = std::string(CUDAFORGE_BINARY_DIR) + "/cudaforge-worker";
  options.device = device;
  options.cuda_search_paths = CudaRoots({});
  WorkerClient client(options);
  LocalEvaluator evaluator(signature, client, **checker);
  const auto found = ProveCandidate(evaluator, ContractExample(language).value());
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  ASSERT_TRUE(found->kernel.has_value()) << found->findings.verdict.ToJson().dump(1);
  EXPECT_NE(found->kernel->binary, "");
}

TEST(ContractExampleVerdict, CpuIsAccepted) {
  if (!MakeCpuTarget().ok()) GTEST_SKIP() << "needs a host compiler";
  ExpectAccepted(Language::kCpu);
}

TEST(GpuContractExampleVerdict, CudaIsAccepted) {
  if (!cu::DriverApi::Get().ok()) GTEST_SKIP() << "needs a GPU";
  ExpectAccepted(Language::kCuda);
}

}  // namespace
}  // namespace cudaforge
