#include <dlfcn.h>
#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <random>
#include <sstream>

#include "base/file.h"
#include "base/subprocess.h"
#include "generators/cuda_prelude.h"
#include "target/cuda/nvrtc_compiler.h"
#include "tests/cpp/generators/cuda_stages.h"
#include "tests/cpp/generators/program_oracle.h"

namespace cudaforge::rows {
namespace {

Result<Candidate> Emit(const StageCase& c, const Schedule& schedule) {
  Program program;
  program.stages = {c.stage};
  return EmitCuda(program, SignatureOf(c), {schedule});
}

// Bytes that end at a page that may not be touched, so that reads past the end fault.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t bytes) : bytes_(bytes), mapped_((bytes + 15) / 4096 * 4096 + 8192) {
    base_ = static_cast<char*>(
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + mapped_ - 4096, 4096, PROT_NONE);
    data_ = base_ + (mapped_ - 4096 - bytes) / 16 * 16;
    memset(base_, 0x5a, mapped_ - 4096);
  }
  GuardedBuffer(GuardedBuffer&& o) noexcept
      : bytes_(o.bytes_),
        mapped_(o.mapped_),
        base_(std::exchange(o.base_, nullptr)),
        data_(o.data_) {}
  GuardedBuffer(const GuardedBuffer&) = delete;
  ~GuardedBuffer() {
    if (base_ != nullptr) munmap(base_, mapped_);
  }
  char* data() const { return data_; }
  bool Intact() const {
    for (const char* p = base_; p < data_; ++p) {
      if (*p != 0x5a) return false;
    }
    for (const char* p = data_ + bytes_; p < base_ + mapped_ - 4096; ++p) {
      if (*p != 0x5a) return false;
    }
    return true;
  }

 private:
  size_t bytes_, mapped_;
  char* base_;
  char* data_;
};

uint32_t Bits(float f) {
  uint32_t bits;
  memcpy(&bits, &f, 4);
  return bits;
}

void Put(char* p, DType t, OracleNumber x) {
  const float f = static_cast<float>(x.f);
  switch (t) {
    case DType::kFloat32:
      memcpy(p, &f, 4);
      break;
    case DType::kFloat64:
      memcpy(p, &x.f, 8);
      break;
    case DType::kBFloat16: {
      const uint16_t bits = static_cast<uint16_t>(Bits(f) >> 16);  // test values have few bits
      memcpy(p, &bits, 2);
      break;
    }
    case DType::kFloat16: {
      const _Float16 h = static_cast<_Float16>(f);
      memcpy(p, &h, 2);
      break;
    }
    case DType::kInt64:
      memcpy(p, &x.i, 8);
      break;
    case DType::kInt32: {
      const int32_t i = static_cast<int32_t>(x.i);
      memcpy(p, &i, 4);
      break;
    }
    case DType::kBool:
      *p = x.i != 0 ? 1 : 0;
      break;
  }
}

OracleNumber Get(const char* p, DType t) {
  float f = 0;
  double d = 0;
  int64_t i = 0;
  int32_t narrow = 0;
  uint16_t half = 0;
  switch (t) {
    case DType::kFloat32:
      memcpy(&f, p, 4);
      return {f, 0};
    case DType::kFloat64:
      memcpy(&d, p, 8);
      return {d, 0};
    case DType::kBFloat16: {
      memcpy(&half, p, 2);
      const uint32_t bits = uint32_t{half} << 16;
      memcpy(&f, &bits, 4);
      return {f, 0};
    }
    case DType::kFloat16: {
      _Float16 h;
      memcpy(&h, p, 2);
      return {static_cast<double>(h), 0};
    }
    case DType::kInt64:
      memcpy(&i, p, 8);
      return {0, i};
    case DType::kInt32:
      memcpy(&narrow, p, 4);
      return {0, narrow};
    case DType::kBool:
      return {0, *p};
  }
  return {};
}

// Multiples of 1/16 in [-4, 4], exact in every type; ties are common. With NaNs now and then when
// asked.
std::vector<ProgramOracle::Buffer> MakeInputs(const StageCase& c, bool nans) {
  std::mt19937 random(7);
  std::vector<ProgramOracle::Buffer> inputs;
  for (const BufferShape& shape : c.inputs) {
    ProgramOracle::Buffer buffer(static_cast<size_t>(shape.count));
    for (OracleNumber& x : buffer) {
      const int n = static_cast<int>(random() % 129) - 64;
      x = {n / 16.0, shape.dtype == DType::kBool ? n > 0 : n};
      if (nans && random() % 50 == 0) x.f = NAN;
    }
    inputs.push_back(std::move(buffer));
  }
  return inputs;
}

double Tolerance(DType t) {
  return t == DType::kBFloat16  ? 8e-3
         : t == DType::kFloat16 ? 1e-3
         : t == DType::kFloat64 ? 1e-12
                                : 2e-5;
}

// Kernels of many cases in one library, run on the host by cuda_shim.h and compared with the
// oracle.
class HostRuns {
 public:
  void Add(StageCase c, const Schedule& schedule, bool nans = false) {
    Result<Candidate> candidate = Emit(c, schedule);
    ASSERT_TRUE(candidate.ok()) << c.name << " " << schedule.ToJson().dump() << ": "
                                << candidate.status().ToString();
    ASSERT_TRUE(candidate->Validate(SignatureOf(c)).ok());
    runs_.push_back({std::move(c), schedule, *std::move(candidate), nans});
  }

  void Go() {
    std::ostringstream code;
    code << "#include \"" CUDAFORGE_SOURCE_DIR "/tests/cpp/generators/cuda_shim.h\"\n"
         << CudaPrelude();
    for (size_t r = 0; r < runs_.size(); ++r) {
      code << "#define rows_stage0 kernel" << r << "\n"
           << runs_[r].candidate.source.code.substr(CudaPrelude().size()) << "#undef rows_stage0\n";
    }
    Result<TempDir> folder = TempDir::Create("emit_cuda");
    ASSERT_TRUE(folder.ok());
    const std::string source = folder->path() + "/k.cc", library = folder->path() + "/k.so";
    ASSERT_TRUE(WriteFileAtomic(source, code.str()).ok());
    const Result<ProcessResult> compiled =
        RunProcess({"c++", "-std=c++20", "-O1", "-fPIC", "-shared", "-w", "-ffp-contract=off", "-o",
                    library, source},
                   240'000);
    ASSERT_TRUE(compiled.ok());
    ASSERT_EQ(compiled->exit_code, 0) << compiled->output.substr(0, 4000);
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(handle, nullptr) << dlerror();
    launch_ = reinterpret_cast<LaunchFn>(dlsym(handle, "ShimLaunch"));
    ASSERT_NE(launch_, nullptr);
    for (size_t r = 0; r < runs_.size(); ++r) {
      SCOPED_TRACE(runs_[r].c.name + " " + runs_[r].schedule.ToJson().dump() + " rows " +
                   std::to_string(runs_[r].c.stage.rows()) + " length " +
                   std::to_string(runs_[r].c.stage.row_length()));
      RunOne(runs_[r], dlsym(handle, ("kernel" + std::to_string(r)).c_str()));
    }
    dlclose(handle);
  }

 private:
  using LaunchFn = int (*)(void (*)(), void**, int, int64_t, int);
  struct One {
    StageCase c;
    Schedule schedule;
    Candidate candidate;
    bool nans;
  };

  void RunOne(const One& run, void* kernel) {
    ASSERT_NE(kernel, nullptr);
    const StageCase& c = run.c;
    const std::vector<ProgramOracle::Buffer> inputs = MakeInputs(c, run.nans);
    std::vector<ProgramOracle::Buffer> expected;
    std::vector<GuardedBuffer> in, out;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      const int64_t size = DTypeSize(c.inputs[i].dtype);
      in.emplace_back(static_cast<size_t>(c.inputs[i].count * size));
      for (size_t e = 0; e < inputs[i].size(); ++e) {
        Put(in[i].data() + static_cast<int64_t>(e) * size, c.inputs[i].dtype, inputs[i][e]);
      }
    }
    for (const BufferShape& b : c.outputs) {
      out.emplace_back(static_cast<size_t>(b.count * DTypeSize(b.dtype)));
      memset(out.back().data(), 0x7b, static_cast<size_t>(b.count * DTypeSize(b.dtype)));
      expected.emplace_back(static_cast<size_t>(b.count));
    }
    const Launch& launch = run.candidate.plan.launches[0];
    std::vector<void*> args;
    for (const LaunchArg& arg : launch.args) {
      const size_t i = static_cast<size_t>(arg.index);
      args.push_back(arg.kind == LaunchArg::Kind::kInput ? in[i].data() : out[i].data());
    }
    const int64_t grid = launch.grid[0].Evaluate(SignatureOf(c)).value();
    ASSERT_EQ(launch_(reinterpret_cast<void (*)()>(kernel), args.data(),
                      static_cast<int>(args.size()), grid, run.schedule.threads),
              0)
        << "threads disagree on a barrier\n"
        << run.candidate.source.code.substr(CudaPrelude().size());
    ProgramOracle::Run(c.stage, inputs, expected);
    for (size_t i = 0; i < c.outputs.size(); ++i) {
      EXPECT_TRUE(out[i].Intact()) << "written outside output " << i;
      const DType t = c.outputs[i].dtype;
      for (size_t e = 0; e < expected[i].size(); ++e) {
        const OracleNumber got = Get(out[i].data() + static_cast<int64_t>(e) * DTypeSize(t), t);
        const OracleNumber want = expected[i][e];
        const bool both_nan = std::isnan(got.f) && std::isnan(want.f);
        const bool equal =
            IsFloating(t) ? both_nan || got.f == want.f ||
                                std::fabs(got.f - want.f) <= Tolerance(t) * (1 + std::fabs(want.f))
                          : got.i == want.i;
        ASSERT_TRUE(equal) << "output " << i << " element " << e << ": got " << got.f << "/"
                           << got.i << ", want " << want.f << "/" << want.i << "\n"
                           << run.candidate.source.code.substr(CudaPrelude().size());
      }
    }
  }

  std::vector<One> runs_;
  LaunchFn launch_ = nullptr;
};

DeviceArch Hopper() { return {"cuda:sm_90a", {{"multiprocessors", 132}}}; }

TEST(EmitCudaOnHost, RowMappings) {
  HostRuns runs;
  for (int64_t length : {1, 3, 31, 33, 100}) {
    const int items = static_cast<int>((length + 31) / 32);
    runs.Add(SoftmaxCase(5, length), {"warp", 64, 1, items, 2});
    runs.Add(SoftmaxCase(5, length), {"loop", 64, 1, 1, 1});
    runs.Add(SoftmaxCase(5, length), {"thread", 32, 1, 4, 1});
  }
  runs.Add(SoftmaxCase(7, 16), {"warp", 64, 4, 1, 8});
  runs.Add(SoftmaxCase(5, 100), {"warp", 64, 4, 1, 2});
  runs.Add(SoftmaxCase(3, 1000), {"block", 64, 4, 4, 1});
  runs.Add(SoftmaxCase(3, 1000), {"loop", 128, 2, 2, 1});
  runs.Add(SoftmaxCase(3, 1000), {"shared", 64, 4, 1, 1});
  for (int vector : {1, 4}) {
    runs.Add(SoftmaxCase(3, 4099), {"loop", 128, vector, 2, 1});
    runs.Add(SoftmaxCase(3, 4099), {"shared", 128, vector, 2, 1});
    runs.Add(SoftmaxCase(1, 4099), {"loop", 64, vector, 2, 1});
  }
  runs.Add(SoftmaxCase(3, 1001), {"block", 64, 4, 4, 1});
  runs.Add(LayerNormCase(5, 256, DType::kBFloat16), {"warp", 64, 8, 1, 2});
  runs.Add(LayerNormCase(3, 1000, DType::kBFloat16), {"block", 64, 8, 2, 1});
  runs.Add(LayerNormCase(3, 1003, DType::kBFloat16), {"loop", 64, 8, 1, 1});
  runs.Add(LayerNormCase(3, 1003, DType::kFloat16), {"shared", 64, 8, 1, 1});
  runs.Add(BatchCase(3, 5, 12), {"block", 32, 4, 1, 1});
  runs.Add(BatchCase(3, 5, 7), {"loop", 32, 4, 1, 1});
  runs.Add(BatchCase(3, 5, 7), {"warp", 32, 1, 1, 1});
  runs.Go();
}

TEST(EmitCudaOnHost, Reduces) {
  HostRuns runs;
  const std::vector<ReduceOp> floats = {ReduceOp::kArgMax, ReduceOp::kArgMin, ReduceOp::kMax,
                                        ReduceOp::kMin};
  for (bool nans : {false, true}) {
    runs.Add(ReduceCase(floats, 9, 33, false), {"warp", 64, 1, 2, 2}, nans);
    runs.Add(ReduceCase(floats, 3, 1001, false), {"loop", 128, 4, 1, 1}, nans);
    runs.Add(ReduceCase(floats, 9, 33, true), {"column", 64, 1, 4, 8}, nans);
    runs.Add(ReduceCase(floats, 8, 33, true), {"column", 64, 4, 2, 32}, nans);
  }
  runs.Add(ReduceCase({ReduceOp::kAny, ReduceOp::kAll}, 9, 33, false, DType::kBool),
           {"warp", 64, 1, 2, 2});
  runs.Add(ReduceCase({ReduceOp::kAny, ReduceOp::kAll}, 16, 3, true, DType::kBool),
           {"thread", 32, 16, 3, 1});
  runs.Add(ReduceCase({ReduceOp::kSum, ReduceOp::kMax}, 3, 1001, false, DType::kInt64),
           {"loop", 64, 2, 2, 1});
  runs.Add(ReduceCase({ReduceOp::kMin, ReduceOp::kSum}, 3, 100, false, DType::kInt32),
           {"block", 64, 4, 1, 1});
  runs.Add(ReduceCase({ReduceOp::kSum, ReduceOp::kMax}, 3, 100, false, DType::kFloat64),
           {"block", 64, 2, 1, 1});
  runs.Go();
}

TEST(EmitCudaOnHost, ScansColumnsAndWindows) {
  HostRuns runs;
  for (int64_t length : {1, 31, 1000, 4099}) {
    runs.Add(ScanCase(3, length, false), {"loop", 64, 1, 2, 1});
    runs.Add(ScanCase(3, length, false), {"loop", 128, 4, 1, 1});
    runs.Add(ScanCase(5, length, true), {"column", 64, 1, 2, 8});
    runs.Add(ScanCase(8, length, true), {"column", 32, 4, 3, 128});
  }
  runs.Add(ScanCase(3, 100, false, DType::kInt64), {"warp", 64, 2, 2, 2});
  runs.Add(ScanCase(3, 1000, false, DType::kInt64), {"block", 128, 2, 4, 1});
  runs.Add(ReduceCase({ReduceOp::kSum}, 8, 1000, true), {"column", 64, 4, 4, 16});
  runs.Add(ReduceCase({ReduceOp::kSum}, 33, 31, true, DType::kBFloat16), {"column", 128, 1, 2, 32});
  runs.Add(ReduceCase({ReduceOp::kSum}, 64, 31, true, DType::kBFloat16), {"column", 64, 8, 4, 64});
  runs.Add(SoftmaxCase(8, 33, true), {"column", 64, 2, 2, 16});
  runs.Add(SoftmaxCase(12, 33, true), {"column", 64, 4, 3, 16});
  runs.Add(SoftmaxCase(33, 9, true), {"thread", 32, 1, 9, 1});
  runs.Add(MaxPoolCase(2, 7, 9), {"thread", 32, 1, 9, 1}, true);
  runs.Add(MaxPoolCase(2, 8, 8), {"thread", 32, 4, 9, 1});
  runs.Add(MaxPoolCase(2, 7, 9), {"warp", 64, 1, 2, 8});
  runs.Add(AvgPoolBackwardCase(3, 10), {"thread", 32, 2, 2, 1});
  runs.Add(AvgPoolBackwardCase(3, 10), {"column", 64, 1, 1, 32});
  runs.Go();
}

// The very schedules that a search begins with.
TEST(EmitCudaOnHost, ChosenSchedules) {
  HostRuns runs;
  for (const StageCase& c : {SoftmaxCase(6, 200), LayerNormCase(3, 768, DType::kBFloat16),
                             SoftmaxCase(64, 40, true), ScanCase(4, 513, false),
                             MaxPoolCase(2, 8, 8), ReduceCase({ReduceOp::kSum}, 2, 5001, false)}) {
    const std::vector<Schedule> schedules = CudaSchedules(c.stage, Hopper());
    ASSERT_FALSE(schedules.empty());
    for (size_t s = 0; s < std::min<size_t>(4, schedules.size()); ++s) runs.Add(c, schedules[s]);
  }
  runs.Go();
}

std::vector<StageCase> RealSizes() {
  return {SoftmaxCase(4096, 1024),
          SoftmaxCase(128, 50257, false, DType::kBFloat16),
          SoftmaxCase(4096, 128, false, DType::kFloat16),
          SoftmaxCase(65536, 64, true),
          LayerNormCase(8192, 4096, DType::kBFloat16),
          LayerNormCase(2048, 768, DType::kFloat32),
          ReduceCase({ReduceOp::kArgMax}, 512, 32000, false),
          ReduceCase({ReduceOp::kSum}, 4096, 8192, true),
          ScanCase(256, 16384, false),
          ScanCase(4096, 1024, true),
          MaxPoolCase(4096, 112, 112),
          AvgPoolBackwardCase(1 << 20, 56),
          BatchCase(64, 128, 784)};
}

TEST(EmitCudaNvrtc, FirstSchedulesCompileEverywhereWithoutSpills) {
  const Result<NvrtcCompiler> compiler = NvrtcCompiler::Create();
  if (!compiler.ok()) GTEST_SKIP() << compiler.status().ToString();
  for (const StageCase& c : RealSizes()) {
    const std::vector<Schedule> schedules = CudaSchedules(c.stage, Hopper());
    ASSERT_FALSE(schedules.empty());
    const Result<Candidate> candidate = Emit(c, schedules[0]);
    ASSERT_TRUE(candidate.ok()) << candidate.status().ToString();
    for (const char* arch : {"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120"}) {
      const CompileResult result = compiler->Compile(candidate->source.code, arch);
      ASSERT_TRUE(result.ok) << c.name << " " << arch << "\n" << result.log;
      const Json& used = result.resources.at("rows_stage0");
      EXPECT_EQ(used.at("spill_bytes"), 0) << c.name << " " << arch << " " << schedules[0].ToJson();
      EXPECT_EQ(used.at("stack_bytes"), 0) << c.name << " " << arch << " " << schedules[0].ToJson();
      std::printf("%-18s %-8s %3d registers  %s\n", c.name.c_str(), arch,
                  used.at("registers").get<int>(), schedules[0].ToJson().dump().c_str());
    }
  }
}

TEST(EmitCudaNvrtc, EveryScheduleCompiles) {
  const Result<NvrtcCompiler> compiler = NvrtcCompiler::Create();
  if (!compiler.ok()) GTEST_SKIP() << compiler.status().ToString();
  for (const StageCase& c : RealSizes()) {
    for (const Schedule& schedule : CudaSchedules(c.stage, Hopper())) {
      const Result<Candidate> candidate = Emit(c, schedule);
      ASSERT_TRUE(candidate.ok()) << candidate.status().ToString();
      const CompileResult result = compiler->Compile(candidate->source.code, "sm_90a");
      ASSERT_TRUE(result.ok) << c.name << " " << schedule.ToJson() << "\n" << result.log;
      const Json& used = result.resources.at("rows_stage0");
      std::printf("%-18s %3d registers %5d spilled  %s\n", c.name.c_str(),
                  used.at("registers").get<int>(), used.at("spill_bytes").get<int>(),
                  schedule.ToJson().dump().c_str());
    }
  }
}

TEST(EmitCuda, SchedulesOutOfRangeAreErrors) {
  const StageCase c = SoftmaxCase(4, 4096);
  EXPECT_FALSE(Emit(c, {"block", 64, 1, 4, 1}).ok());      // does not fit
  EXPECT_FALSE(Emit(c, {"warp", 256, 1, 4, 1}).ok());      // group over a warp
  EXPECT_FALSE(Emit(c, {"loop", 100, 1, 4, 1}).ok());      // no power of two
  EXPECT_FALSE(Emit(c, {"loop", 2048, 1, 4, 1}).ok());     // too many threads
  EXPECT_FALSE(Emit(c, {"sideways", 128, 1, 4, 1}).ok());  // no such mapping
  EXPECT_FALSE(Emit(SoftmaxCase(4, 1 << 20), {"shared", 256, 4, 4, 1}).ok());
}

TEST(EmitCuda, AlignmentBeyondTheSignatureIsAConstraint) {
  const StageCase c = SoftmaxCase(4, 4096);
  Program program;
  program.stages = {c.stage};
  OpSignature signature = SignatureOf(c);
  EXPECT_TRUE(EmitCuda(program, signature, {{"loop", 128, 4, 1, 1}})->constraints.empty());
  signature.inputs[0].alignment = 4;
  const Result<Candidate> candidate = EmitCuda(program, signature, {{"loop", 128, 4, 1, 1}});
  ASSERT_TRUE(candidate.ok());
  ASSERT_EQ(candidate->constraints.size(), 1u);
  EXPECT_EQ(candidate->constraints[0].value, 16);
  EXPECT_TRUE(EmitCuda(program, signature, {{"loop", 128, 1, 1, 1}})->constraints.empty());
}

}  // namespace
}  // namespace cudaforge::rows
