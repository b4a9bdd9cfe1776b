#include "verify/own_kernels.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "target/cuda/nvrtc_compiler.h"

namespace cudaforge {
namespace {

// All programs: each kernel of one type, and "" for the others.
std::vector<std::string> Programs() {
  std::vector<std::string> programs = OwnKernelsOfTypes();
  programs.emplace_back();
  return programs;
}

TEST(OwnKernels, SourceHasEachTextOnce) {
  for (const std::string& kernel : Programs()) {
    const Result<std::string> source = OwnKernelSource(kernel);
    ASSERT_TRUE(source.ok()) << source.status().ToString();
    EXPECT_EQ(source->find("#include \"verify/"), std::string::npos) << kernel;
    const std::string once = "CF_DEVICE To BitCast(";
    const size_t first = source->find(once);
    ASSERT_NE(first, std::string::npos) << kernel;
    EXPECT_EQ(source->find(once, first + 1), std::string::npos) << kernel;
  }
}

TEST(OwnKernels, KernelOfOneTypeHasItsOwnProgram) {
  const std::vector<std::string> kernels = OwnKernelsOfTypes();
  EXPECT_EQ(kernels.size(), 14u);  // draw and screen, of seven types
  for (const std::string& program : Programs()) {
    const std::string source = OwnKernelSource(program).value();
    for (const std::string& kernel : kernels) {
      const bool there = source.find("CF_KERNEL_OF_TYPE(" + kernel + ",") != std::string::npos;
      EXPECT_EQ(there, kernel == program) << kernel << " in the program of " << program;
    }
  }
}

class OwnKernelsCompile : public testing::TestWithParam<const char*> {};

TEST_P(OwnKernelsCompile, UnderNvrtcWithoutSpills) {
  const Result<NvrtcCompiler> compiler = NvrtcCompiler::Create();
  if (!compiler.ok()) GTEST_SKIP() << "needs NVRTC: set CUDAFORGE_CUDA_PATH";
  for (const std::string& kernel : Programs()) {
    const CompileResult compiled = compiler->Compile(OwnKernelSource(kernel).value(), GetParam());
    ASSERT_TRUE(compiled.ok) << kernel << ": " << compiled.log << compiled.fault.ToString();
    EXPECT_TRUE(kernel.empty() || compiled.resources.contains(kernel)) << compiled.resources;
    for (const auto& [name, use] : compiled.resources.items()) {
      EXPECT_EQ(use.at("spill_bytes"), 0) << name << ": " << use.dump();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Archs, OwnKernelsCompile, testing::Values("sm_75", "sm_80", "sm_90a"));

}  // namespace
}  // namespace cudaforge
