#include "target/cuda/ptx_audit.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>

#include "base/file.h"
#include "target/cuda/nvrtc_compiler.h"

namespace cudaforge {
namespace {

std::string Kernel(const std::string& body, const std::string& before = "") {
  return ".version 8.0\n.target sm_90a\n.address_size 64\n" + before +
         "\n.visible .entry k(.param .u64 k_param_0)\n{\n.reg .pred %p<2>;\n.reg .b32 %r<9>;\n"
         ".reg .b64 %rd<9>;\n" +
         body + "\nret;\n}\n";
}

TEST(PtxAudit, SpecialRegisters) {
  for (const char* allowed : {"%tid.x", "%ctaid.y", "%laneid", "%cluster_ctarank",
                              "%dynamic_smem_size", "%lanemask_lt"}) {
    EXPECT_TRUE(AuditPtx(Kernel("mov.u32 %r1, " + std::string(allowed) + ";")).ok()) << allowed;
  }
  for (const char* refused :
       {"%clock", "%clock64", "%globaltimer", "%globaltimer_lo", "%smid", "%nsmid", "%gridid",
        "%pm0", "%pm3_64", "%envreg1", "%what_comes_later"}) {
    EXPECT_FALSE(AuditPtx(Kernel("mov.u32 %r1, " + std::string(refused) + ";")).ok()) << refused;
    EXPECT_FALSE(AuditPtx(Kernel("{ .reg .u32 t1; mov.u32 t1, " + std::string(refused) +
                                 "; mov.u32 %r1, t1; }"))
                     .ok())
        << refused;
  }
  EXPECT_TRUE(AuditPtx(Kernel("// mov.u32 %r1, %smid;\n/* %clock */")).ok());
  EXPECT_FALSE(AuditPtx(Kernel("mov.u32 %r1, /* here */ %smid;")).ok());
  EXPECT_FALSE(AuditPtx(Kernel("mov.u32 %r77, %smid;")).ok());
}

TEST(PtxAudit, Waiting) {
  EXPECT_FALSE(AuditPtx(Kernel("brkpt;")).ok());
  EXPECT_FALSE(AuditPtx(Kernel("@%p1 brkpt;")).ok());
  EXPECT_FALSE(AuditPtx(Kernel("nanosleep.u32 100;")).ok());
  EXPECT_FALSE(AuditPtx(Kernel("@%p1 nanosleep.u32 %r1;")).ok());
  EXPECT_FALSE(AuditPtx(Kernel("L1: nanosleep.u32 %r1;")).ok());
}

TEST(PtxAudit, TablesAreReadOnly) {
  const std::string table = ".global .align 4 .b8 table[8] = {1, 2, 3, 4, 5, 6, 7, 8};";
  const std::string address = "mov.u64 %rd1, table;\nadd.s64 %rd2, %rd1, %rd3;\n";
  EXPECT_TRUE(AuditPtx(Kernel("ld.global.u32 %r1, [table];", table)).ok());
  EXPECT_TRUE(
      AuditPtx(
          Kernel(address + "ld.global.nc.u32 %r1, [%rd2+4];\nst.global.u32 [%rd4], %r1;", table))
          .ok());
  EXPECT_TRUE(AuditPtx(Kernel(address + "st.global.u32 [%rd3], %r1;", table)).ok())
      << "%rd3 is the place in it";
  for (const char* body : {"st.global.u32 [table], %r1;", "atom.global.add.u32 %r1, [table], 1;",
                           "red.global.add.u32 [table+4], 1;",
                           "tensormap.replace.tile.rank.global.b1024.b32 [table], 2;",
                           "cp.async.bulk.global.shared::cta.bulk_group [table], "
                           "[%rd4], 16;"}) {
    EXPECT_FALSE(AuditPtx(Kernel(body, table)).ok()) << body;
  }
  for (const char* body :
       {"st.global.u32 [%rd2], %r1;", "@%p1 st.u32 [%rd2+4], %r1;", "st.local.u64 [%rd4], %rd2;",
        "mov.b64 {%r1, %r2}, %rd2;\nmov.b64 %rd5, {%r1, %r2};\nst.global.u32 [%rd5], %r3;",
        "mov.b64 {%r1, %r2}, %rd2;\nmov.b64 %rd5, {%r3, %r2};\nst.global.u32 [%rd5], %r3;",
        "cvta.global.u64 %rd5, %rd2;\nselp.b64 %rd6, %rd4, %rd5, %p1;\natom.add.u32 %r1, [%rd6], "
        "1;",
        "st.param.b64 [param0+0], %rd2;"}) {
    EXPECT_FALSE(AuditPtx(Kernel(address + body, table)).ok()) << body;
  }
  // In any order of instructions.
  EXPECT_FALSE(
      AuditPtx(Kernel("L1: st.global.u32 [%rd2], %r1;\nmov.u64 %rd2, table;\nbra L1;", table))
          .ok());
  // Registers are local to a function.
  EXPECT_TRUE(AuditPtx(Kernel(address, table) + Kernel("st.global.u32 [%rd2], %r1;")).ok());
}

TEST(PtxAudit, TablesOfAddresses) {
  EXPECT_FALSE(
      AuditPtx(Kernel("", ".global .align 4 .u32 a = 1;\n.global .u64 p = generic(a);")).ok());
  EXPECT_FALSE(AuditPtx(Kernel("", ".global .align 4 .u32 a = 1;\n.const .u64 p[1] = {a};")).ok());
  EXPECT_TRUE(AuditPtx(Kernel("", ".const .align 4 .b8 c[12] = {1, 0, 0, 0, 2};")).ok());
}

TEST(PtxAudit, InvalidText) {
  for (const char* text : {"", ";", "{", "/*", "//", "@", "@;", ".entry", ".func;{", ".global",
                           ".global ;", "%", "mov", "mov {", "mov }", "ld.", "L:", ".reg"}) {
    (void)AuditPtx(text);
  }
}

class AuditOfSource : public testing::Test {
 protected:
  void SetUp() override {
    auto compiler = NvrtcCompiler::Create();
    if (!compiler.ok()) GTEST_SKIP() << "needs NVRTC: set CUDAFORGE_CUDA_PATH";
    compiler_.emplace(*std::move(compiler));
  }
  // "" if it compiles.
  std::string Fault(const std::string& before, const std::string& body) {
    const CompileResult result =
        compiler_->Compile(before +
                               "\nextern \"C\" __global__ void k(float* x, double* d, long long "
                               "n) {\n" +
                               body + "\n}\n",
                           "sm_90a", 60'000);
    return result.ok ? "" : result.log;
  }
  std::optional<NvrtcCompiler> compiler_;
};

TEST_F(AuditOfSource, HonestKernelsCompile) {
  EXPECT_EQ(
      Fault("__device__ const float table[4] = {1, 2, 3, 4};\n__constant__ int c[3] = {1, 2, 3};\n"
            "constexpr float squares[3] = {1.f, 4.f, 9.f};",
            "x[n] = sinf(x[1]) + tanf(x[2]) + powf(x[3], x[4]) + lgammaf(x[5]) + erfinvf(x[6]) + "
            "table[n] + c[n] + squares[n];\n"
            "d[n] = sin(d[1]) + cos(d[2]) + pow(d[3], d[4]) + lgamma(d[5]) + j0(d[6]);"),
      "");
  EXPECT_EQ(Fault("",
                  "__shared__ float parts[32];\nfloat spilled[64];\n"
                  "for (int i = 0; i < 64; ++i) spilled[i] = x[i * n];\n"
                  "parts[threadIdx.x % warpSize] = spilled[n % 64];\n__syncthreads();\n"
                  "atomicAdd(x, parts[threadIdx.y]);"),
            "");
}

TEST_F(AuditOfSource, ProjectKernelsPass) {
  int compiled = 0;
  const std::string packs = std::string(CUDAFORGE_SOURCE_DIR) + "/cache/packs/sm_90a";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(packs)) {
    const std::string name = entry.path().extension().string();
    if (name != ".cu" && name != ".ptx") continue;
    const std::string code = ReadFile(entry.path().string()).value();
    const Status status = name == ".ptx" ? AuditPtx(code) : Status::Ok();
    EXPECT_TRUE(status.ok()) << entry.path() << ": " << status.message();
    if (name == ".ptx") continue;
    const CompileResult result = compiler_->Compile(code, "sm_90a", 60'000);
    EXPECT_TRUE(result.ok) << entry.path() << ": " << result.log;
    ++compiled;
  }
  EXPECT_GE(compiled, 10);
}

TEST_F(AuditOfSource, KernelsThatObserveTheDeviceAreRefused) {
  for (const char* body :
       {"x[0] = clock();", "x[0] = clock64();", "__nanosleep(100);", "__brkpt();",
        "unsigned s; asm volatile(\"mov.u32 %0, %%smid;\" : \"=r\"(s)); x[0] = s;",
        "unsigned long long t; asm volatile(\"mov.u64 %0, %%globaltimer;\" : \"=l\"(t)); x[0] = "
        "t;"}) {
    EXPECT_NE(Fault("", body).find("refused: it may not"), std::string::npos) << body;
  }
  EXPECT_NE(
      Fault("__device__ int counter = 1;", "x[0] = counter++;").find("refused: it must not write"),
      std::string::npos);
  EXPECT_NE(Fault("", "static int counter = 1; if (atomicAdd(&counter, 1) > 9) x[0] = 0;")
                .find("refused: it must not write"),
            std::string::npos);
  EXPECT_NE(Fault("__device__ int counters[4] = {1, 1, 1, 1};", "x[0] = counters[n]++;")
                .find("refused: it must not write"),
            std::string::npos);
}

}  // namespace
}  // namespace cudaforge
