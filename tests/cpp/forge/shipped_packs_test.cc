// The kernels shipped in cache/packs are valid and compile.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "cache/source_pack.h"
#include "forge/agent/coder.h"
#include "generators/generator.h"
#include "kernel/candidate.h"
#include "target/cuda/nvrtc_compiler.h"
#include "verify/evaluator.h"

// NVRTC itself leaks a little on each compilation error and on its first use.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions() {
  return "leak:libnvrtc\n";
}

namespace cudaforge {
namespace {

std::vector<CacheRecord> Shipped() {
  const std::string packs = std::string(CUDAFORGE_SOURCE_DIR) + "/cache/packs";
  std::vector<CacheRecord> records;
  for (const auto& folder : std::filesystem::directory_iterator(packs)) {
    if (!folder.is_directory()) continue;
    const auto read = ReadSourcePack(folder.path().string());
    EXPECT_TRUE(read.ok()) << read.status().ToString();
    for (const auto& record : *read) {
      EXPECT_TRUE(record.ok()) << record.status().ToString();
      EXPECT_EQ(record->arch, "cuda:" + folder.path().filename().string());
      records.push_back(*record);
    }
  }
  return records;
}

TEST(ShippedPacks, WinnersHaveEvidence) {
  const std::vector<CacheRecord> records = Shipped();
  ASSERT_FALSE(records.empty());
  std::set<std::string> keys;
  for (const CacheRecord& record : records) {
    SCOPED_TRACE(record.key);
    EXPECT_TRUE(keys.insert(record.arch + record.key).second);
    const auto signature = OpSignature::Parse(record.signature);
    ASSERT_TRUE(signature.ok()) << signature.status().ToString();
    EXPECT_EQ(signature->Key(), record.key);
    EXPECT_TRUE(IsAgentRegion(*signature).ok() || CanGenerate(*signature, record.arch).ok());
    ASSERT_TRUE(record.Serves().compiled);
    const auto json = ParseJson(record.variants[0].candidate);
    const auto candidate = Candidate::FromJson(*json);
    ASSERT_TRUE(candidate.ok()) << candidate.status().ToString();
    EXPECT_TRUE(candidate->Validate(*signature).ok());
    EXPECT_GE(record.Fields().value()["verification"]["cases"].size(), 4u);
    EXPECT_EQ(record.versions["verifier"], kVerifierVersion)
        << "judged by another verifier: forge them again, or leave them out";
  }
}

TEST(ShippedPacks, CompileForTheirArchitecture) {
  static const auto* const nvrtc = new Result<NvrtcCompiler>(NvrtcCompiler::Create());
  if (!nvrtc->ok()) GTEST_SKIP() << "needs NVRTC: set CUDAFORGE_CUDA_PATH";
  for (const CacheRecord& record : Shipped()) {
    const auto candidate = Candidate::FromJson(*ParseJson(record.variants[0].candidate));
    if (candidate->source.language != Language::kCuda) continue;
    const std::string arch = record.arch.substr(record.arch.find(':') + 1);
    const CompileResult result = (*nvrtc)->Compile(candidate->source.code, arch);
    ASSERT_TRUE(result.ok) << record.key << "\n" << result.log;
    for (const Launch& launch : candidate->plan.launches) {
      EXPECT_TRUE(result.resources.contains(launch.kernel)) << record.key;
    }
  }
}

}  // namespace
}  // namespace cudaforge
