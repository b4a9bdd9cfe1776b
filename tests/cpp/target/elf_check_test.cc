#include "target/elf_check.h"

#include <gtest/gtest.h>

#include "target/cpu/cpu_compiler.h"
#include "target/cuda/nvrtc_compiler.h"

namespace cudaforge {
namespace {

constexpr char kCpuKernel[] =
    "extern \"C\" void f(void* const* b, const int64_t*, const double*, int64_t i, int64_t) {\n"
    "  float* y = static_cast<float*>(b[0]);\n";

CompileResult Cpu(const std::string& before, const std::string& body) {
  return CompileCpu("#include <cmath>\n#include <cstdint>\n#include <cstring>\n" + before +
                        kCpuKernel + body + "}\n",
                    "", 60'000);
}

TEST(CheckCpuLibrary, ConstantsAndMathsAreAllowed) {
  const CompileResult made =
      Cpu("constexpr double kTable[] = {1, 2, 3};\nconst char* const kNames[] = {\"a\", \"b\"};\n",
          "static const float t[4] = {1, 2, 3, 4};\n"
          "y[i] = std::sin(y[i]) + std::pow(y[i], t[i & 3]) + float(kTable[i % 3]) + "
          "float(std::lgamma(1.0) * 0) * 0 + float(kNames[i & 1][0]);\n"
          "std::memmove(y, y + i, 64);");
  // lgamma stores a sign in the C library.
  EXPECT_FALSE(made.ok);
  EXPECT_NE(made.log.find("'lgamma'"), std::string::npos) << made.log;
  const CompileResult right =
      Cpu("constexpr double kTable[] = {1, 2, 3};\nconst char* const kNames[] = {\"a\", \"b\"};\n",
          "static const float t[4] = {1, 2, 3, 4};\n"
          "y[i] = std::sin(y[i]) + std::pow(y[i], t[i & 3]) + float(kTable[i % 3]) + "
          "float(kNames[i & 1][0]) + float(std::erf(double(y[i]))) + std::fmod(y[i], 3.f);\n"
          "std::memmove(y, y + i, size_t(i));");
  EXPECT_TRUE(right.ok) << right.log;
}

TEST(CheckCpuLibrary, StateBetweenCallsIsRefused) {
  const struct {
    const char *before, *body, *said;
  } bad[] = {
      {"", "static long n; y[i] = float(++n);", "memory of its own (.bss)"},
      {"", "static long n = 7; y[i] = float(++n);", "memory of its own (.data)"},
      {"", "static thread_local long n; y[i] = float(++n);", "memory of its own (.tbss)"},
      {"struct A { A(); float v; };\nA::A() : v(2) {}\nA a;\n", "y[i] = a.v;", "memory of its own"},
      {"extern \"C\" char* program_invocation_short_name;\n",
       "y[i] = float(program_invocation_short_name[0]);", "progname"},
      {"extern \"C\" int getppid() __attribute__((weak));\n",
       "y[i] = getppid != nullptr ? float(getppid()) : 0;", "getppid"},
  };
  for (const auto& [before, body, said] : bad) {
    const CompileResult made = Cpu(before, body);
    EXPECT_FALSE(made.ok) << body;
    EXPECT_TRUE(made.fault.ok()) << made.fault.ToString();
    EXPECT_NE(made.log.find(said), std::string::npos) << made.log;
  }
}

CompileResult Cuda(const std::string& before, const std::string& body) {
  static const auto* const nvrtc = new Result<NvrtcCompiler>(NvrtcCompiler::Create());
  if (!nvrtc->ok()) return CompileResult::Fault(nvrtc->status());
  return (*nvrtc)->Compile(
      before + "extern \"C\" __global__ void f(float* y, double* z) {\n" + body + "}\n", "sm_90a");
}

TEST(CheckCubin, ConstantsAndMathsAreAllowed) {
  const CompileResult made =
      Cuda("__constant__ float kTable[4] = {1, 2, 3, 4};\nconstexpr float kOther[] = {1, 2};\n",
           "__shared__ float s[8];\n s[threadIdx.x & 7] = sinf(y[0]);\n __syncthreads();\n"
           "y[0] = s[1] + kTable[int(y[1])] + kOther[1] + lgammaf(y[2]) + powf(y[3], y[4]);\n"
           "z[0] = sin(z[1]) + tan(z[2]) + lgamma(z[3]) + pow(z[4], z[5]);\n");
  if (!made.fault.ok()) GTEST_SKIP() << made.fault.ToString();
  EXPECT_TRUE(made.ok) << made.log;
}

TEST(CheckCubin, StateBetweenLaunchesIsRefused) {
  for (const auto& [before, body] :
       {std::pair("__device__ int n;\n", "y[0] = float(atomicAdd(&n, 1));"),
        std::pair("", "static int n; y[0] = float(n++);"),
        std::pair("constexpr int kFirst = 0;\n", "y[kFirst] = 1;")}) {  // NVRTC gives it a place
    const CompileResult made = Cuda(before, body);
    if (!made.fault.ok()) GTEST_SKIP() << made.fault.ToString();
    EXPECT_FALSE(made.ok) << before << body;
    EXPECT_NE(made.log.find("outlives a launch"), std::string::npos) << made.log;
  }
}

TEST(ElfChecks, OtherFilesAreCorruption) {
  for (const std::string& image : {std::string(),
                                   std::string("\x7f"
                                               "ELF"),
                                   std::string(64, 'x')}) {
    EXPECT_EQ(CheckCpuLibrary(image).code(), StatusCode::kCorruption);
    EXPECT_EQ(CheckCubin(image).code(), StatusCode::kCorruption);
  }
}

}  // namespace
}  // namespace cudaforge
