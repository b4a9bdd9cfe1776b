#include "target/cuda/nvrtc_compiler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "target/cuda/device_rates.h"
#include "target/cuda/on_chip_scrub.h"
#include "target/cuda/ptxas_log.h"
#include "target/cuda/search_paths.h"
#include "target/elf_check.h"

// NVRTC and nvJitLink leak a little on each error and on their first use.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions() {
  return "leak:libnvrtc\nleak:libnvJitLink\n";
}

namespace cudaforge {
namespace {

// Found as on users' machines; CUDAFORGE_CUDA_PATH may point to PyPI's site-packages/nvidia/cu13.
const NvrtcCompiler* Nvrtc() {
  static const Result<NvrtcCompiler>* const compiler =
      new Result<NvrtcCompiler>(NvrtcCompiler::Create());
  return compiler->ok() ? &compiler->value() : nullptr;
}

#define NEEDS_NVRTC() \
  if (Nvrtc() == nullptr) GTEST_SKIP() << "needs NVRTC: set CUDAFORGE_CUDA_PATH"

constexpr char kReduce[] = R"(
#include <cstdint>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void __launch_bounds__(256) row_sum(const __half* x, float* y, int64_t columns, double scale) {
  __shared__ float parts[8];
  float sum = 0.0f;
  for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) sum += __half2float(x[blockIdx.x * columns + c]);
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0.0f;
    for (int i = 0; i < 8; ++i) total += parts[i];
    y[blockIdx.x] = total * static_cast<float>(scale);
  }
}
)";

class NvrtcArch : public testing::TestWithParam<const char*> {};

TEST_P(NvrtcArch, CompilesDeviceRatesKernels) {
  NEEDS_NVRTC();
  const CompileResult result = Nvrtc()->Compile(kRatesSource, GetParam());
  ASSERT_TRUE(result.ok) << result.log;
  for (const char* kernel : {"copy16", "fma32", "mma_bf16", "mma_fp16"}) {
    const Json& facts = result.resources.at(kernel);
    EXPECT_EQ(facts.at("spill_bytes"), 0) << kernel;
    EXPECT_EQ(facts.at("stack_bytes"), 0) << kernel << ": its chains are not in registers";
    EXPECT_LE(facts.at("registers").get<int>(), 96) << kernel;
  }
}

TEST_P(NvrtcArch, CompilesScrubKernels) {
  NEEDS_NVRTC();
  const CompileResult result = Nvrtc()->Compile(kScrubSource, GetParam());
  ASSERT_TRUE(result.ok) << result.log;
  const Json& shared = result.resources.at("scrub_shared");
  EXPECT_EQ(shared.at("stack_bytes"), 0) << "its numbers are not in registers";
  EXPECT_GE(shared.at("registers").get<int>(), 200);
  EXPECT_EQ(result.resources.at("scrub_local").at("stack_bytes"), 512);
}

TEST_P(NvrtcArch, CompilesWithFactsAndNoSpills) {
  NEEDS_NVRTC();
  const CompileResult result = Nvrtc()->Compile(kReduce, GetParam());
  ASSERT_TRUE(result.ok) << result.log;
  EXPECT_EQ(result.binary.substr(0, 4),
            "\x7f"
            "ELF");
  const Json& facts = result.resources.at("row_sum");
  EXPECT_GT(facts.at("registers").get<int>(), 0);
  EXPECT_LE(facts.at("registers").get<int>(), 255);
  EXPECT_EQ(facts.at("spill_bytes").get<int>(), 0);
  EXPECT_GE(facts.at("shared_bytes").get<int>(), 32);
}

TEST_P(NvrtcArch, ReportsSpills) {
  NEEDS_NVRTC();
  // 64 live values per thread under a limit of 1,024 threads per block times two blocks: 32
  // registers.
  const CompileResult result = Nvrtc()->Compile(R"(
extern "C" __global__ void __launch_bounds__(1024, 2) spill(const float* x, float* y, long long n) {
  float v[64];
  #pragma unroll
  for (int i = 0; i < 64; ++i) v[i] = x[threadIdx.x + i * n];
  __syncthreads();
  #pragma unroll
  for (int i = 0; i < 64; ++i) {
    #pragma unroll
    for (int j = 0; j < 64; ++j) v[i] = v[i] * v[j] + v[(i * 7 + j) % 64];
  }
  #pragma unroll
  for (int i = 0; i < 64; ++i) y[threadIdx.x + i * n] = v[i];
}
)",
                                                GetParam());
  ASSERT_TRUE(result.ok) << result.log;
  EXPECT_GT(result.resources.at("spill").at("spill_bytes").get<int>(), 0) << result.resources;
}

INSTANTIATE_TEST_SUITE_P(Nvrtc, NvrtcArch,
                         testing::Values("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120"));

TEST(Nvrtc, CubinsAreReproducible) {
  NEEDS_NVRTC();
  EXPECT_EQ(Nvrtc()->Compile(kReduce, "sm_90a").binary, Nvrtc()->Compile(kReduce, "sm_90a").binary);
}

TEST(Nvrtc, TruncatedCubinsAreDetected) {
  NEEDS_NVRTC();
  const std::string cubin = Nvrtc()->Compile(kReduce, "sm_90a").binary;
  EXPECT_TRUE(CheckElfBounds(cubin).ok());
  for (size_t n = 0; n < cubin.size(); n += 7) {
    ASSERT_EQ(CheckElfBounds(std::string_view(cubin).substr(0, n)).code(), StatusCode::kCorruption)
        << n;
  }
}

TEST(Nvrtc, TheExactArchAllowsItsInstructions) {
  NEEDS_NVRTC();
  const std::string code =
      "extern \"C\" __global__ void f() { asm volatile(\"wgmma.fence.sync.aligned;\"); }\n";
  EXPECT_TRUE(Nvrtc()->Compile(code, "sm_90a").ok);
  const CompileResult plain = Nvrtc()->Compile(code, "sm_90");
  EXPECT_FALSE(plain.ok);
  EXPECT_NE(plain.log.find("wgmma"), std::string::npos) << plain.log;
}

TEST(Nvrtc, CompileErrorCarriesTheLog) {
  NEEDS_NVRTC();
  const CompileResult result =
      Nvrtc()->Compile("extern \"C\" __global__ void f() {\n  undeclared_name = 1;\n}\n", "sm_80");
  EXPECT_FALSE(result.ok);
  EXPECT_NE(result.log.find("undeclared_name"), std::string::npos);
  EXPECT_NE(result.log.find("kernel.cu(2)"), std::string::npos) << result.log;
}

TEST(Nvrtc, UnknownArchIsAClearFailure) {
  NEEDS_NVRTC();
  const CompileResult result = Nvrtc()->Compile(kReduce, "sm_999");
  EXPECT_FALSE(result.ok);
  EXPECT_NE(result.log.find("sm_999"), std::string::npos) << result.log;
  EXPECT_NE(result.log.find("update"), std::string::npos) << result.log;
  EXPECT_EQ(Nvrtc()->CheckArch("sm_999").code(), StatusCode::kUnsupported);
  for (const char* text :
       {"", "sm_", "90a", "sm_90b", "sm_80 -I/", "compute_80", "sm_99999999999999"}) {
    EXPECT_EQ(Nvrtc()->CheckArch(text).code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(Nvrtc, FilesDoNotLeakIntoTheLog) {
  NEEDS_NVRTC();
  const CompileResult result = Nvrtc()->Compile("#include \"/etc/passwd\"\n", "sm_80");
  EXPECT_FALSE(result.ok);
  EXPECT_TRUE(result.log.starts_with("refused: line 1")) << result.log;
  EXPECT_EQ(result.log.find("root:"), std::string::npos);
}

TEST(Nvrtc, LongCompilationIsStopped) {
  NEEDS_NVRTC();
  std::string code;
  for (int k = 0; k < 3000; ++k) {
    code += "__global__ void k" + std::to_string(k) +
            "(float* x) { for (int i = 0; i < 64; ++i) x[i] = sinf(x[i]); }\n";
  }
  const CompileResult result = Nvrtc()->Compile(code, "sm_90a", 1);
  EXPECT_FALSE(result.ok);
  EXPECT_NE(result.log.find("stopped after 1 ms"), std::string::npos) << result.log.substr(0, 400);
}

TEST(PtxasLog, ReadsEachKernel) {
  const std::string log =
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'a' for 'sm_90a'\n"
      "ptxas info    : Function properties for a\n"
      "    752 bytes stack frame, 972 bytes spill stores, 1248 bytes spill loads\n"
      "ptxas info    : Used 32 registers, used 1 barriers, 752 bytes cumulative stack size, 2048 "
      "bytes smem\n"
      "ptxas warning : Registers are spilled to local memory in function 'a'\n"
      "ptxas info    : Compiling entry function 'b' for 'sm_90a'\n"
      "ptxas info    : Function properties for b\n"
      "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 8 registers, used 0 barriers\n";
  const Json facts = ParsePtxasLog(log);
  EXPECT_EQ(
      facts.at("a"),
      (Json{
          {"registers", 32}, {"spill_bytes", 2220}, {"stack_bytes", 752}, {"shared_bytes", 2048}}));
  EXPECT_EQ(facts.at("b").at("registers"), 8);
  EXPECT_EQ(facts.size(), 2u);
  EXPECT_EQ(WithoutPtxasNotes(log),
            "ptxas warning : Registers are spilled to local memory in function 'a'");
  for (size_t n = 0; n < log.size(); ++n) ParsePtxasLog(std::string_view(log).substr(0, n));
}

TEST(CudaSearchPaths, EachExistingFolderIsListedOnce) {
  const std::vector<std::string> roots = CudaRoots({"/usr", "/no/such/folder", "/usr"});
  EXPECT_EQ(std::count(roots.begin(), roots.end(), "/usr"), 1);
  EXPECT_EQ(std::count(roots.begin(), roots.end(), "/no/such/folder"), 0);
  const std::vector<std::string> candidates = CudaLibraryCandidates({}, {"libnothing.so.1"});
  EXPECT_EQ(candidates, std::vector<std::string>{"libnothing.so.1"});
}

TEST(CudaSearchPaths, MissingLibraryHasAdvice) {
  const Result<SymbolLoader> none = OpenCudaLibrary({}, {"libnothing.so.1"}, "Nothing", "nothing");
  ASSERT_EQ(none.status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(none.status().message().starts_with("Nothing is missing: pip install nothing"))
      << none.status().message();
  Result<SymbolLoader> load = OpenCudaLibrary({}, {"libm.so.6"}, "Maths", "maths");
  ASSERT_TRUE(load.ok()) << load.status().message();
  void* function = nullptr;
  load->Required(function, "cos");
  EXPECT_TRUE(CheckComplete(*load, "Maths 2").ok());
  load->Required(function, "no_such_function");
  EXPECT_EQ(CheckComplete(*load, "Maths 2").message(),
            "libm.so.6 has no no_such_function: Maths 2 or newer is needed");
}

}  // namespace
}  // namespace cudaforge
