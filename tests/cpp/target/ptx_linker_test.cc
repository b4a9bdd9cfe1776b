#include "target/cuda/ptx_linker.h"

#include <gtest/gtest.h>

#include <string>

#include "target/elf_check.h"

namespace cudaforge {
namespace {

// Found as on users' machines; CUDAFORGE_CUDA_PATH may point to PyPI's site-packages/nvidia/cu13.
const PtxLinker* Linker() {
  static const Result<PtxLinker>* const linker = new Result<PtxLinker>(PtxLinker::Create());
  return linker->ok() ? &linker->value() : nullptr;
}

#define NEEDS_NVJITLINK() \
  if (Linker() == nullptr) GTEST_SKIP() << "needs nvJitLink: set CUDAFORGE_CUDA_PATH"

// A kernel that copies a float through 1024 bytes of shared memory, with `more` in the middle.
std::string Ptx(const std::string& more = "", const std::string& before = "",
                const std::string& target = "sm_80", const std::string& version = "8.0") {
  return ".version " + version + "\n.target " + target + "\n.address_size 64\n" + before + R"(
.visible .entry copy(.param .u64 x, .param .u64 y) {
  .reg .b32 %thread, %word;
  .reg .b64 %x, %y, %offset;
  .reg .f32 %value;
  .shared .align 4 .b8 tile[1024];
  ld.param.u64 %x, [x];
  ld.param.u64 %y, [y];
  mov.u32 %thread, %tid.x;
  mul.wide.u32 %offset, %thread, 4;
  add.s64 %x, %x, %offset;
  add.s64 %y, %y, %offset;
  ld.global.f32 %value, [%x];
  st.shared.f32 [tile], %value;
  bar.sync 0;
  ld.shared.f32 %value, [tile];
)" + more +
         R"(
  st.global.f32 [%y], %value;
  ret;
}
)";
}

// A kernel that keeps `values` floats at once under a limit of `threads` threads a block.
std::string Wide(int values, int threads) {
  std::string text = ".visible .entry wide(.param .u64 x)\n.maxntid " + std::to_string(threads) +
                     "\n{\n.reg .b64 %x;\n.reg .f32 %v<" + std::to_string(values) +
                     ">;\nld.param.u64 %x, [x];\n";
  const auto at = [](int i) { return "[%x+" + std::to_string(4 * i) + "]"; };
  const auto value = [&](int i) { return "%v" + std::to_string(i % values); };
  for (int i = 0; i < values; ++i)
    text += "ld.volatile.global.f32 " + value(i) + ", " + at(i) + ";\n";
  text += "bar.sync 0;\n";
  for (int i = 0; i < values; ++i) {
    for (int j = 0; j < values; j += 16) {
      text += "fma.rn.f32 " + value(i) + ", " + value(i) + ", " + value(j) + ", " +
              value(i * 7 + j) + ";\n";
    }
  }
  for (int i = 0; i < values; ++i)
    text += "st.volatile.global.f32 " + at(i) + ", " + value(i) + ";\n";
  return text + "ret;\n}\n";
}

class PtxLinkerArch : public testing::TestWithParam<const char*> {};

TEST_P(PtxLinkerArch, LinksWithFactsAndNoSpills) {
  NEEDS_NVJITLINK();
  const CompileResult result = Linker()->Link(Ptx(), GetParam());
  ASSERT_TRUE(result.ok) << result.log;
  EXPECT_TRUE(
      result.binary.starts_with("\x7f"
                                "ELF"));
  EXPECT_TRUE(CheckElfBounds(result.binary).ok());
  EXPECT_EQ(result.log, "");
  const Json& facts = result.resources.at("copy");
  EXPECT_GT(facts.at("registers").get<int>(), 0);
  EXPECT_LE(facts.at("registers").get<int>(), 64);
  EXPECT_EQ(facts.at("spill_bytes"), 0);
  EXPECT_EQ(facts.at("stack_bytes"), 0);
  EXPECT_GE(facts.at("shared_bytes").get<int>(), 1024);
}

TEST_P(PtxLinkerArch, ReportsSpills) {
  NEEDS_NVJITLINK();
  const CompileResult result = Linker()->Link(Ptx() + Wide(96, 1024), GetParam());
  ASSERT_TRUE(result.ok) << result.log;
  EXPECT_EQ(result.resources.size(), 2u) << result.resources;
  EXPECT_GT(result.resources.at("wide").at("spill_bytes").get<int>(), 0) << result.resources;
  EXPECT_GT(result.resources.at("wide").at("stack_bytes").get<int>(), 0) << result.resources;
  EXPECT_EQ(result.resources.at("copy").at("spill_bytes"), 0) << result.resources;
  EXPECT_NE(result.log.find("spilled"), std::string::npos) << result.log;
  EXPECT_EQ(result.log.find("ptxas info"), std::string::npos) << result.log;
}

TEST_P(PtxLinkerArch, LeavesDynamicSharedMemoryToTheLaunch) {
  NEEDS_NVJITLINK();
  const CompileResult result =
      Linker()->Link(Ptx("mov.u32 %word, dynamic; st.shared.f32 [%word], %value;",
                         ".extern .shared .align 16 .b8 dynamic[];\n"),
                     GetParam());
  EXPECT_TRUE(result.ok) << result.log;
}

INSTANTIATE_TEST_SUITE_P(PtxLinker, PtxLinkerArch,
                         testing::Values("sm_80", "sm_90a", "sm_100a", "sm_120"));

TEST(PtxLinker, CubinsAreReproducible) {
  NEEDS_NVJITLINK();
  EXPECT_EQ(Linker()->Link(Ptx(), "sm_90a").binary, Linker()->Link(Ptx(), "sm_90a").binary);
}

TEST(PtxLinker, TheExactArchAllowsItsInstructions) {
  NEEDS_NVJITLINK();
  const char* const fence = "wgmma.fence.sync.aligned;";
  const CompileResult exact = Linker()->Link(Ptx(fence, "", "sm_90a"), "sm_90a");
  EXPECT_TRUE(exact.ok) << exact.log;
  const CompileResult plain = Linker()->Link(Ptx(fence), "sm_90a");
  EXPECT_FALSE(plain.ok);
  EXPECT_NE(plain.log.find("wgmma"), std::string::npos) << plain.log;
  const CompileResult older = Linker()->Link(Ptx(fence, "", "sm_90a"), "sm_80");
  EXPECT_FALSE(older.ok);
  EXPECT_TRUE(older.fault.ok());
}

TEST(PtxLinker, ErrorsCarryTheLog) {
  NEEDS_NVJITLINK();
  const auto log = [](const std::string& ptx) {
    const CompileResult result = Linker()->Link(ptx, "sm_90a");
    EXPECT_FALSE(result.ok);
    EXPECT_TRUE(result.fault.ok()) << result.fault.ToString();
    EXPECT_TRUE(result.binary.empty());
    EXPECT_FALSE(result.log.empty());
    EXPECT_LE(result.log.size(), CompileResult::kMaxLog + 16);
    return result.log;
  };
  const std::string bogus = log(Ptx("bogus.u32 %thread;"));
  EXPECT_NE(bogus.find("'bogus'"), std::string::npos) << bogus;
  EXPECT_NE(bogus.find("line 20"), std::string::npos) << bogus;
  EXPECT_NE(log(Ptx("", "", "sm_80", "99.0")).find("version"), std::string::npos);
  std::string many;
  for (int i = 0; i < 5000; ++i) many += "bogus.u32 %thread;\n";
  log(Ptx(many));
  log("");
  log("no PTX at all");
  log("__global__ void f() {}\n");
  log(Ptx().substr(0, Ptx().size() / 2));
  log(Ptx(std::string(100'000, '{')));
}

TEST(PtxLinker, UnresolvedSymbolsAreRefused) {
  NEEDS_NVJITLINK();
  const CompileResult call = Linker()->Link(
      Ptx("{ .param .b32 result; call (result), elsewhere; ld.param.f32 %value, [result]; }",
          ".extern .func (.param .b32 result) elsewhere();\n"),
      "sm_90a");
  EXPECT_FALSE(call.ok);
  EXPECT_NE(call.log.find("elsewhere"), std::string::npos) << call.log;
  const CompileResult data = Linker()->Link(
      Ptx("ld.global.f32 %value, [absent];", ".extern .global .f32 absent;\n"), "sm_90a");
  EXPECT_FALSE(data.ok);
  EXPECT_NE(data.log.find("absent"), std::string::npos) << data.log;
}

TEST(PtxLinker, UnknownArchIsAClearFault) {
  NEEDS_NVJITLINK();
  const CompileResult result = Linker()->Link(Ptx(), "sm_999");
  EXPECT_FALSE(result.ok);
  EXPECT_EQ(result.fault.code(), StatusCode::kUnsupported);
  EXPECT_NE(result.log.find("sm_999"), std::string::npos) << result.log;
  EXPECT_NE(result.log.find("update"), std::string::npos) << result.log;
  for (const char* arch : {"", "sm_", "90a", "sm_90b", "sm_80 -I/", "compute_80"}) {
    const CompileResult other = Linker()->Link(Ptx(), arch);
    EXPECT_FALSE(other.ok) << arch;
    EXPECT_FALSE(other.fault.ok()) << arch;
  }
}

TEST(PtxLinker, RefusesBinaryText) {
  EXPECT_TRUE(CheckPtxSource(Ptx()).ok());
  EXPECT_TRUE(CheckPtxSource("// a # in a comment\r\n\t.version 8.0\n").ok());
  EXPECT_FALSE(CheckPtxSource(Ptx() + std::string(1, '\0') + "more").ok());
  EXPECT_FALSE(CheckPtxSource("// \xc3\xa9\n").ok());
  EXPECT_FALSE(CheckPtxSource("\x7f"
                              "ELF")
                   .ok());
  EXPECT_TRUE(CheckPtxSource(std::string(KernelSource::kMaxBytes, ' ')).ok());
  EXPECT_FALSE(CheckPtxSource(std::string(KernelSource::kMaxBytes + 1, ' ')).ok());
  const Status include = CheckPtxSource("\n  #include \"/etc/passwd\"\n");
  EXPECT_EQ(include.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(include.message().starts_with("line 2")) << include.message();
}

TEST(PtxLinker, RefusedTextReachesNoLinker) {
  NEEDS_NVJITLINK();
  const CompileResult result = Linker()->Link("#include \"/etc/passwd\"\n" + Ptx(), "sm_80");
  EXPECT_FALSE(result.ok);
  EXPECT_TRUE(result.log.starts_with("refused: line 1")) << result.log;
}

}  // namespace
}  // namespace cudaforge
