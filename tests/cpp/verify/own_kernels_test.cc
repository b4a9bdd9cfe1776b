#include "verify/own_kernels.h"

#include <gtest/gtest.h>

#include <string>

#include "target/cuda/nvrtc_compiler.h"

namespace cudaforge {
namespace {

TEST(OwnKernels, SourceHasEachTextOnceAndNoIncludeOfItsOwn) {
  const Result<std::string> source = OwnKernelSource();
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_EQ(source->find("#include \"verify/"), std::string::npos);
  const std::string once = "CF_DEVICE To BitCast(";
  const size_t first = source->find(once);
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(source->find(once, first + 1), std::string::npos);
}

class OwnKernelsCompile : public testing::TestWithParam<const char*> {};

TEST_P(OwnKernelsCompile, UnderNvrtcWithoutSpills) {
  const Result<NvrtcCompiler> compiler = NvrtcCompiler::Create();
  if (!compiler.ok()) GTEST_SKIP() << "needs NVRTC: set CUDAFORGE_CUDA_PATH";
  const Result<std::string> source = OwnKernelSource();
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  const CompileResult compiled = compiler->Compile(*source, GetParam());
  ASSERT_TRUE(compiled.ok) << compiled.log << compiled.fault.ToString();
  for (const auto& [kernel, use] : compiled.resources.items()) {
    EXPECT_EQ(use.at("spill_bytes"), 0) << kernel << ": " << use.dump();
  }
}

INSTANTIATE_TEST_SUITE_P(Archs, OwnKernelsCompile, testing::Values("sm_75", "sm_80", "sm_90a"));

}  // namespace
}  // namespace cudaforge
