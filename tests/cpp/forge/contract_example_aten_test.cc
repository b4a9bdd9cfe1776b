// The verifier accepts the examples of the contract documents.
#include <gtest/gtest.h>

#include "target/cuda/driver_api.h"
#include "target/cuda/search_paths.h"
#include "target/target.h"
#include "tests/cpp/forge/contract_example.h"
#include "verify/verifiers.h"

namespace cudaforge {
namespace {

void ExpectAccepted(Language language) {
  const DeviceType device = language == Language::kCuda ? DeviceType::kCuda : DeviceType::kCpu;
  const OpSignature signature = ExampleRegion(device);
  const std::string programs = CUDAFORGE_BINARY_DIR;
  Verifiers verifiers({.executable = programs + "/cudaforge-verifier",
                       .worker = programs + "/cudaforge-worker",
                       .library_path = "",
                       .cxx = "",
                       .cuda_search_paths = CudaRoots({})});
  const auto evaluator =
      verifiers.Open(signature, 0, std::numeric_limits<double>::infinity(), nullptr);
  ASSERT_TRUE(evaluator.ok()) << evaluator.status().ToString();
  const auto found = ProveCandidate(**evaluator, ContractExample(language).value());
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
