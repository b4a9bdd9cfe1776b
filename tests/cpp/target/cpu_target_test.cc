#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "target/cpu/cpu_compiler.h"
#include "target/target.h"
#include "tests/cpp/unchecked_library.h"

namespace cudaforge {
namespace {

constexpr char kCpuSource[] = R"(
#include <cmath>
#include <cstdint>
extern "C" void scale(void* const* buffers, const int64_t* ints, const double* floats, int64_t begin, int64_t end) {
  const float* x = static_cast<const float*>(buffers[0]);
  float* y = static_cast<float*>(buffers[1]);
  const int64_t columns = ints[0];
  for (int64_t r = begin; r < end; ++r) {
#pragma omp simd
    for (int64_t c = 0; c < columns; ++c) y[r * columns + c] = x[r * columns + c] * static_cast<float>(floats[0]);
  }
}
extern "C" void add_one(void* const* buffers, const int64_t* ints, const double*, int64_t begin, int64_t end) {
  const float* x = static_cast<const float*>(buffers[0]);
  float* y = static_cast<float*>(buffers[1]);
  for (int64_t i = begin * ints[0]; i < end * ints[0]; ++i) y[i] = x[i] + 1.0f;
}
)";

OpSignature CpuSignature() {
  OpSignature signature;
  const TensorSpec spec{DType::kFloat32, {64, 100}, {100, 1}, 16};
  signature.inputs = {spec};
  Node node;
  node.op = "aten::relu";
  node.args = Json::array({Json{{"in", 0}}});
  node.outputs = {spec};
  signature.nodes = {node};
  signature.outputs = {{0, 0}};
  return signature;
}

// y = scale(x, 3) into scratch, then + 1 into the output.
Candidate TwoLaunches() {
  Candidate candidate;
  candidate.source = {Language::kCpu, kCpuSource};
  candidate.plan.scratch_bytes = {IntExpr::Parse("in0.size0 * in0.size1 * 4").value()};
  Launch first;
  first.kernel = "scale";
  first.args.resize(4);
  first.args[0] = {LaunchArg::Kind::kInput, 0, {}, 0};
  first.args[1] = {LaunchArg::Kind::kFloat, 0, {}, 3.0};
  first.args[2] = {LaunchArg::Kind::kScratch, 0, {}, 0};
  first.args[3] = {LaunchArg::Kind::kInt, 0, IntExpr::Parse("in0.size1").value(), 0};
  first.range = IntExpr::Parse("in0.size0").value();
  first.grain = 4;
  Launch second = first;
  second.kernel = "add_one";
  second.args = {{LaunchArg::Kind::kScratch, 0, {}, 0},
                 {LaunchArg::Kind::kOutput, 0, {}, 0},
                 {LaunchArg::Kind::kInt, 0, IntExpr::Parse("in0.size1").value(), 0}};
  candidate.plan.launches = {first, second};
  return candidate;
}

class CpuTargetTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<Target>> target = MakeCpuTarget();
    ASSERT_TRUE(target.ok()) << target.status().ToString();
    target_ = *std::move(target);
  }
  CompileResult Compile(const std::string& code) {
    return target_->Compile({Language::kCpu, code}, 60'000);
  }
  std::unique_ptr<Target> target_;
};

TEST_F(CpuTargetTest, DescribesTheProcessor) {
  EXPECT_TRUE(target_->arch().target.starts_with("cpu:")) << target_->arch().target;
  const DeviceArch& arch = target_->arch();
  EXPECT_GE(arch.cores, 1);
  EXPECT_LE(arch.cores, arch.logical_cpus);
  EXPECT_FALSE(arch.isa.empty());
  EXPECT_FALSE(target_->poisoned());
}

TEST_F(CpuTargetTest, ZeroesScratchBeforeTheLaunches) {
  const CompileResult compiled = Compile(kCpuSource);
  ASSERT_TRUE(compiled.ok) << compiled.log;
  Candidate candidate = TwoLaunches();  // only the second is run: 1 + scratch
  candidate.plan.launches.erase(candidate.plan.launches.begin());
  candidate.plan.scratch_bytes[0].zeroed = true;
  const auto executable = target_->Load(compiled.binary, candidate, CpuSignature()).value();
  std::vector<float> in(6400), out(6400), scratch(6400, 5.0f);
  void* const inputs[] = {in.data()};
  void* const outputs[] = {out.data()};
  void* const buffers[] = {scratch.data()};
  ASSERT_TRUE(executable->Launch(inputs, outputs, buffers, target_->launch_context()).ok());
  EXPECT_EQ(out, std::vector<float>(6400, 1.0f));
}

TEST_F(CpuTargetTest, TensorMapsAreUnsupported) {
  const CompileResult compiled = Compile(kCpuSource);
  ASSERT_TRUE(compiled.ok) << compiled.log;
  Candidate candidate = TwoLaunches();
  candidate.plan.tensor_maps = {
      {.of = {}, .dtype = "float32", .sizes = {64}, .strides = {}, .box = {4}}};
  EXPECT_EQ(candidate.Validate(CpuSignature()).code(), StatusCode::kUnsupported);
  EXPECT_EQ(target_->Load(compiled.binary, candidate, CpuSignature()).status().code(),
            StatusCode::kUnsupported);
}

TEST_F(CpuTargetTest, RunsAPlanOfTwoLaunches) {
  const CompileResult compiled = Compile(kCpuSource);
  ASSERT_TRUE(compiled.ok) << compiled.log;
  const OpSignature signature = CpuSignature();
  const Candidate candidate = TwoLaunches();
  ASSERT_TRUE(candidate.Validate(signature).ok());
  const auto executable = target_->Load(compiled.binary, candidate, signature);
  ASSERT_TRUE(executable.ok()) << executable.status().ToString();
  ASSERT_EQ((*executable)->scratch_bytes().size(), 1u);
  EXPECT_EQ((*executable)->scratch_bytes()[0], 64 * 100 * 4);

  constexpr int64_t kBytes = 64 * 100 * 4;
  DeviceBuffer in = target_->Allocate(kBytes).value();
  DeviceBuffer out = target_->Allocate(kBytes).value();
  DeviceBuffer scratch = target_->Allocate(kBytes).value();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(in.data()) % 256, 0u);
  std::vector<float> values(6400);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  ASSERT_TRUE(target_->CopyIn(in.data(), values.data(), kBytes).ok());
  void* const inputs[] = {in.data()};
  void* const outputs[] = {out.data()};
  void* const scratches[] = {scratch.data()};

  for (const LaunchContext& context : {target_->launch_context(), LaunchContext{}}) {
    ASSERT_TRUE((*executable)->Launch(inputs, outputs, scratches, context).ok());
    std::vector<float> result(6400);
    ASSERT_TRUE(target_->CopyOut(result.data(), out.data(), kBytes).ok());
    for (size_t i = 0; i < result.size(); ++i)
      ASSERT_EQ(result[i], 3.0f * static_cast<float>(i) + 1.0f) << i;
  }
  const Result<double> ns = target_->TimeOnce(
      [&] { return (*executable)->Launch(inputs, outputs, scratches, target_->launch_context()); });
  ASSERT_TRUE(ns.ok());
  EXPECT_GT(*ns, 0);
  EXPECT_EQ((*executable)->Launch(inputs, {}, scratches, {}).code(), StatusCode::kInvalidArgument);
}

#if defined(__x86_64__)
TEST_F(CpuTargetTest, LaunchRestoresControlWords) {
  // Writes its input to MXCSR.
  const char source[] = R"(
extern "C" void scale(void* const* b, const long* n, const double*, long begin, long) {
  if (begin == 0) __builtin_ia32_ldmxcsr(static_cast<const unsigned*>(b[0])[0]);
}
extern "C" void add_one(void* const*, const long*, const double*, long, long) {}
)";
  const auto executable = target_->Load(UncheckedLibrary(source), TwoLaunches(), CpuSignature());
  ASSERT_TRUE(executable.ok()) << executable.status().ToString();
  std::vector<unsigned> in(6400, 0x1f80);
  std::vector<float> out(6400), scratch(6400);
  void* inputs[] = {in.data()};
  void* outputs[] = {out.data()};
  void* scratches[] = {scratch.data()};
  const auto bound = (*executable)->Bind(inputs, outputs, scratches);
  ASSERT_TRUE(bound.ok());
  const unsigned before = __builtin_ia32_stmxcsr();
  EXPECT_TRUE((*executable)->Launch(inputs, outputs, scratches, {}).ok());
  in[0] = 0x9fc0;  // subnormal numbers are zero
  EXPECT_EQ((*executable)->Launch(inputs, outputs, scratches, {}).code(), StatusCode::kUnsupported);
  EXPECT_EQ((*bound)->Run(target_->launch_context()).code(), StatusCode::kUnsupported);
  EXPECT_EQ(__builtin_ia32_stmxcsr() & ~0x3fu, before & ~0x3fu);
  EXPECT_FALSE((*executable)->Bind(inputs, {}, scratches).ok());
}
#endif

TEST_F(CpuTargetTest, LibrariesDoNotShareSymbols) {
  // Two loaded libraries have the same name: each executable must call its own.
  const OpSignature signature = CpuSignature();
  Candidate candidate = TwoLaunches();
  candidate.plan.launches.pop_back();
  candidate.plan.launches[0].args[2] = {LaunchArg::Kind::kOutput, 0, {}, 0};
  const std::string code = kCpuSource;
  std::string doubled = code;
  doubled.replace(doubled.find("floats[0])"), 10, "floats[0] * 2)");
  const CompileResult one = Compile(code);
  const CompileResult two = Compile(doubled);
  ASSERT_TRUE(one.ok && two.ok) << one.log << two.log;
  const auto first = target_->Load(one.binary, candidate, signature);
  const auto second = target_->Load(two.binary, candidate, signature);
  ASSERT_TRUE(first.ok() && second.ok());
  std::vector<float> in(6400, 1.0f);
  std::vector<float> out(6400);
  void* const inputs[] = {in.data()};
  void* const outputs[] = {out.data()};
  std::vector<float> scratch(6400);
  void* const scratches[] = {scratch.data()};
  ASSERT_TRUE((*first)->Launch(inputs, outputs, scratches, {}).ok());
  EXPECT_EQ(out[17], 3.0f);
  ASSERT_TRUE((*second)->Launch(inputs, outputs, scratches, {}).ok());
  EXPECT_EQ(out[17], 6.0f);
}

TEST_F(CpuTargetTest, CompileErrorCarriesTheLog) {
  const CompileResult result = Compile("extern \"C\" void f() {\n  undeclared_name = 1;\n}\n");
  EXPECT_FALSE(result.ok);
  EXPECT_NE(result.log.find("undeclared_name"), std::string::npos) << result.log;
  EXPECT_NE(result.log.find("kernel.cc:2"), std::string::npos) << result.log;
  EXPECT_EQ(result.log.find("cudaforge-cpu-"), std::string::npos)
      << "the temporary folder's name is noise";
  EXPECT_TRUE(result.binary.empty());
}

TEST_F(CpuTargetTest, LongLogIsCut) {
  std::string code = "extern \"C\" void f() {\n";
  for (int i = 0; i < 4000; ++i) code += "  undeclared_" + std::to_string(i) + " = 1;\n";
  const CompileResult result = Compile(code + "}\n");
  EXPECT_FALSE(result.ok);
  EXPECT_LE(result.log.size(), (64u << 10) + 16);
}

TEST_F(CpuTargetTest, RefusalsAreLogs) {
  const CompileResult result = Compile("#include \"/etc/passwd\"\n");
  EXPECT_FALSE(result.ok);
  EXPECT_TRUE(result.log.starts_with("refused: line 1")) << result.log;
  EXPECT_EQ(result.log.find("root:"), std::string::npos);
  EXPECT_FALSE(target_->Compile({Language::kCuda, ""}, 1000).ok);
  EXPECT_FALSE(target_->Compile({Language::kPtx, ""}, 1000).ok);
}

TEST_F(CpuTargetTest, UndefinedSymbolsFailAtCompileTime) {
  const CompileResult result = Compile("extern \"C\" void g();\nextern \"C\" void f() { g(); }\n");
  EXPECT_FALSE(result.ok);
  EXPECT_NE(result.log.find("undefined reference"), std::string::npos) << result.log;
}

TEST_F(CpuTargetTest, BadBinariesAreErrors) {
  const OpSignature signature = CpuSignature();
  EXPECT_EQ(target_->Load("no library", TwoLaunches(), signature).status().code(),
            StatusCode::kCorruption);
  EXPECT_EQ(target_->Load("", TwoLaunches(), signature).status().code(), StatusCode::kCorruption);
  const CompileResult compiled = Compile("extern \"C\" void other() {}\n");
  ASSERT_TRUE(compiled.ok) << compiled.log;
  const auto loaded = target_->Load(compiled.binary, TwoLaunches(), signature);
  EXPECT_EQ(loaded.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(loaded.status().message().find("scale"), std::string::npos);
  for (size_t n = 0; n < compiled.binary.size(); n += 1 + compiled.binary.size() / 200) {
    const auto cut = target_->Load(compiled.binary.substr(0, n), TwoLaunches(), signature);
    ASSERT_EQ(cut.status().code(), StatusCode::kCorruption) << n;
  }
}

TEST(CpuCompiler, MissingCompilerHasAdvice) {
  const CompileResult result =
      CompileCpu("extern \"C\" void f() {}\n", "no-such-compiler-here", 1000);
  EXPECT_FALSE(result.ok);
  EXPECT_EQ(result.fault.code(), StatusCode::kUnavailable);
  EXPECT_NE(result.log.find("no-such-compiler-here"), std::string::npos);
  EXPECT_NE(result.log.find("CUDAFORGE_CXX"), std::string::npos);
  EXPECT_EQ(FindHostCompiler("/nonexistent/g++").status().code(), StatusCode::kUnavailable);
}

TEST(CpuCompiler, HangingCompilerIsStopped) {
  const TempDir folder = TempDir::Create("cudaforge-test-").value();
  const std::string script = folder.path() + "/slow";
  ASSERT_TRUE(WriteFileAtomic(script, "#!/bin/sh\necho working\nsleep 60\n").ok());
  ASSERT_EQ(chmod(script.c_str(), 0700), 0);
  const CompileResult result = CompileCpu("extern \"C\" void f() {}\n", script, 300);
  EXPECT_FALSE(result.ok);
  EXPECT_NE(result.log.find("stopped after 300 ms"), std::string::npos) << result.log;
}

TEST(CpuCompiler, FullDiskIsAMachineFault) {
  const TempDir folder = TempDir::Create("cudaforge-test-").value();
  const std::string script = folder.path() + "/full";
  // A compiler that fails with this message for our source only.
  const auto compile = [&](const std::string& words) {
    const std::string text =
        "#!/bin/sh\nfor last; do :; done\ngrep -q 'void f()' $last || exec g++ \"$@\"\n"
        "echo '" +
        words + "' >&2\nexit 1\n";
    EXPECT_TRUE(WriteFileAtomic(script, text).ok());
    EXPECT_EQ(chmod(script.c_str(), 0700), 0);
    return CompileCpu("extern \"C\" void f() {}\n", script, 10'000);
  };
  const CompileResult full = compile("as: cannot write to /tmp/x.o: No space left on device");
  EXPECT_FALSE(full.ok);
  EXPECT_EQ(full.fault.code(), StatusCode::kUnavailable);
  EXPECT_NE(full.log.find("No space left on device"), std::string::npos);
  EXPECT_FALSE(compile("g++: fatal error: Killed signal terminated program cc1plus").fault.ok());
  EXPECT_FALSE(
      compile("kernel.cc:9:1: fatal error: error writing to /tmp/a.s: No space left on device")
          .fault.ok());
  EXPECT_TRUE(compile("kernel.cc:1:1: error: expected a declaration").fault.ok());
  EXPECT_EQ(compile("x\ng++: Disk quota exceeded\ny").fault.message(), "g++: Disk quota exceeded");
  // The source cannot forge that message.
  for (const char* code : {"#error No space left on device\n",
                           "#error fatal error: error writing to x: No space left on device\n",
                           "static_assert(false, \"No space left on device\");\n"}) {
    const CompileResult said = CompileCpu(code, "", 60'000);
    EXPECT_FALSE(said.ok);
    EXPECT_TRUE(said.fault.ok()) << said.fault.ToString();
  }
}

TEST(CpuCompiler, SilentCompilerIsAFailure) {
  const CompileResult result = CompileCpu("extern \"C\" void f() {}\n", "true", 10'000);
  EXPECT_FALSE(result.ok);
  EXPECT_FALSE(result.fault.ok()) << "it compiles nothing at all";
  EXPECT_NE(result.log.find("wrote no library"), std::string::npos) << result.log;
}

TEST_F(CpuTargetTest, ProfilesOneCall) {
  const CompileResult compiled = Compile(kCpuSource);
  ASSERT_TRUE(compiled.ok) << compiled.log;
  const auto executable = target_->Load(compiled.binary, TwoLaunches(), CpuSignature());
  ASSERT_TRUE(executable.ok()) << executable.status().ToString();
  int calls = 0;
  const auto work = [&] {
    ++calls;
    return Status::Ok();
  };
  const auto facts = target_->Profile(**executable, work, 0);
  ASSERT_TRUE(facts.ok()) << facts.status().ToString();
  EXPECT_EQ(calls, 0) << "launch facts need no run";
  EXPECT_EQ((*facts)["tier"], 0);
  EXPECT_EQ((*facts)["note"], "");
  ASSERT_EQ((*facts)["kernels"].size(), 2u);
  const Json& first = (*facts)["kernels"][0];
  EXPECT_EQ(first["kernel"], "scale");
  EXPECT_EQ(first["range"], 64);
  EXPECT_EQ(first["grain"], 4);
  EXPECT_EQ(first["parts"], std::min(16, first["threads"].get<int>()));
  EXPECT_EQ((*facts)["kernels"][1]["kernel"], "add_one");

  const auto profile = target_->Profile(**executable, work, kMaxProfileTier);
  ASSERT_TRUE(profile.ok()) << profile.status().ToString();
  const bool counted = !(*profile)["metrics"].empty();
  EXPECT_EQ((*profile)["tier"], counted ? 1 : 0);
  EXPECT_TRUE(counted || !(*profile)["note"].get<std::string>().empty());
  EXPECT_EQ((*profile)["kernels"], (*facts)["kernels"]);
  EXPECT_EQ(target_->Profile(**executable, work, 9)->size(), profile->size());
}

TEST_F(CpuTargetTest, MeasuresItsFactsOnce) {
  const auto facts = target_->Facts();
  ASSERT_TRUE(facts.ok()) << facts.status().ToString();
  EXPECT_EQ((*facts)["note"], "");
  EXPECT_EQ((*facts)["arch"], target_->arch().target);
  EXPECT_EQ((*facts)["threads"], *target_->arch().threads);
  const std::string compiler = (*facts)["compiler"];
  EXPECT_NE(compiler, target_->arch().compiler) << "its version is told as well";
  EXPECT_NE(compiler.find('.'), std::string::npos) << compiler;
  // Wide enough for any processor; a wrong unit or a wrong count is off by more.
  for (const char* rate : {"bandwidth_gb_s", "fp32_tflops", "fp64_tflops"}) {
    ASSERT_TRUE(facts->contains(rate)) << *facts;
    EXPECT_GT((*facts)[rate].get<double>(), 1e-3) << rate;
    EXPECT_LT((*facts)[rate].get<double>(), 1e4) << rate;
  }
  EXPECT_EQ(*target_->Facts(), *facts);
}

TEST(CpuTargetWithoutACompiler, FactsWithoutRates) {
  const auto target = MakeCpuTarget({.cxx = "no-such-compiler-here"});
  ASSERT_TRUE(target.ok());
  const auto facts = (*target)->Facts();
  ASSERT_TRUE(facts.ok()) << facts.status().ToString();
  EXPECT_FALSE(facts->contains("fp32_tflops"));
  EXPECT_NE((*facts)["note"].get<std::string>().find("no-such-compiler-here"), std::string::npos);
  EXPECT_TRUE(facts->contains("cores"));
  EXPECT_FALSE(facts->contains("compiler"));
}

}  // namespace
}  // namespace cudaforge
