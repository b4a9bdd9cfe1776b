#include "target/source_scan.h"

#include <gtest/gtest.h>

#include "target/cpu/cpu_compiler.h"
#include "target/cuda/nvrtc_compiler.h"

namespace cudaforge {
namespace {

TEST(SourceScan, AllowsOrdinaryKernels) {
  EXPECT_TRUE(
      CheckCpuSource(
          "#include <cmath>\n#include <cstdint> // \"quoted\" in a comment\n"
          "/* #include \"x\" */ const char* s = \"#include asm\"; long n = 1'000'000;\n"
          "#define TILE(x) \\\n  ((x) + 1)\n#pragma omp simd reduction(+ : s)\n#pragma GCC ivdep\n")
          .ok());
  EXPECT_TRUE(
      CheckCudaSource(
          "#include <cuda_fp16.h>\n#include <cub/block/block_reduce.cuh>\n#pragma unroll 4\n"
          "__device__ void f() { asm volatile(\"bar.sync 0;\"); }\n#define CAT(a, b) a##b\n")
          .ok());
}

TEST(SourceScan, NamesTheLine) {
  const Status status = CheckCpuSource("int a;\n\n#include <fstream>\n");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("line 3"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("<cmath>"), std::string::npos) << "lists what is allowed";
}

class CpuRefusal : public testing::TestWithParam<const char*> {};
TEST_P(CpuRefusal, IsRefused) {
  EXPECT_EQ(CheckCpuSource(GetParam()).code(), StatusCode::kInvalidArgument) << GetParam();
}
INSTANTIATE_TEST_SUITE_P(
    SourceScan, CpuRefusal,
    testing::Values(
        "#include \"/etc/passwd\"\n", "#include </etc/passwd>\n", "#include <../x>\n",
        "#include <cuda/../../etc/passwd>\n", "#include \"local.h\"\n",
        "#define H <cmath>\n#include H\n", "#inc\\\nlude \"x\"\n", "  # /* c */ include \"x\"\n",
        "#include_next <cmath>\n", "#embed </etc/passwd>\n", "%:include \"x\"\n",
        "#pragma GCC dependency \"/etc/passwd\"\n", "#pragma GCC poison int\n",
        "_Pragma(\"GCC poison int\")\n", "#if __has_include(\"/etc/passwd\")\n#endif\n",
        "asm(\"hlt\");", "__asm__ volatile(\"\");", "a\\\nsm(\"hlt\");",
        "__attribute__((constructor)) void f() {}", "__attribute__((__destructor__)) void f() {}",
        "__attribute__((section(\".init_array\"))) void* p;", "#define CAT(a, b) a##b\n",
        "const char* s = R\"(\n)\"; ", "extern \"C\" int system(const char*);", "#line 1 \"x\"\n",
        "int \\u0061;", "long x = _xgetbv(0);", "long x = __builtin_ia32_xgetbv(1);",
        "long x = __readeflags();", "long x = __builtin_ia32_readeflags_u64();",
        "void f() { __writeeflags(0x100); }", "int x = _xbegin();"));

class CudaRefusal : public testing::TestWithParam<const char*> {};
TEST_P(CudaRefusal, IsRefused) {
  EXPECT_EQ(CheckCudaSource(GetParam()).code(), StatusCode::kInvalidArgument) << GetParam();
}
INSTANTIATE_TEST_SUITE_P(
    SourceScan, CudaRefusal,
    testing::Values("#include \"/etc/passwd\"\n", "#include <cuda/../../../etc/passwd>\n",
                    "#include <vector>\n", "#define H <cuda_fp16.h>\n#include H\n",
                    "#pragma diag_suppress 1\n", "#if __has_include(<x>)\n#endif\n"));

TEST(SourceScan, SurvivesTruncatedText) {
  const std::string code =
      "#include <cmath>\n/* c */ const char* s = \"a\\\"b\"; char c = '\\''; // end\n#define A "
      "\\\n 1'0";
  for (size_t n = 0; n <= code.size(); ++n) {
    const Status status = CheckCpuSource(code.substr(0, n));
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(CheckCpuSource(std::string("int a;\0int b;", 13)).ok());
}

}  // namespace
}  // namespace cudaforge
