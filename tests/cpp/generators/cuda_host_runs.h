// Emitted CUDA kernels run on the host (cuda_shim.h) between guard pages and compared with
// run_program.h.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/subprocess.h"
#include "generators/rows/cuda/prelude.h"
#include "tests/cpp/generators/cuda_stages.h"
#include "tests/cpp/generators/run_program.h"

namespace cudaforge::rows {

inline Program ProgramOf(const StageCase& c) {
  Program program;
  program.stages = {c.stage};
  return program;
}

inline Result<Candidate> Emit(const StageCase& c, const Schedule& schedule) {
  return EmitCuda(ProgramOf(c), SignatureOf(c), {schedule});
}

// Bytes that end at a protected page, so that reads past the end fault.
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

inline uint32_t Bits(float f) {
  uint32_t bits;
  memcpy(&bits, &f, 4);
  return bits;
}

inline void Put(char* p, DType t, Num x) {
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

inline Num Get(const char* p, DType t) {
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

// Multiples of 1/16 in [-4, 4], exact in every type, with many ties. `specials`: some NaN and
// infinities.
inline std::vector<Memory> MakeInputs(const OpSignature& signature, bool specials) {
  std::mt19937 random(7);
  std::vector<Memory> inputs;
  for (const TensorSpec& shape : signature.inputs) {
    Memory buffer(static_cast<size_t>(shape.StorageBytes() / DTypeSize(shape.dtype)));
    for (Num& x : buffer) {
      const int n = static_cast<int>(random() % 129) - 64;
      x = {n / 16.0, shape.dtype == DType::kBool ? n > 0 : n};
      if (specials && random() % 50 == 0) x.f = random() % 2 == 0 ? NAN : INFINITY;
    }
    inputs.push_back(std::move(buffer));
  }
  return inputs;
}

inline double Tolerance(DType t) {
  return t == DType::kBFloat16  ? 8e-3
         : t == DType::kFloat16 ? 1e-3
         : t == DType::kFloat64 ? 1e-12
                                : 2e-5;
}

// Kernels of many programs in one library, run on the host by cuda_shim.h and compared with the
// oracle's results.
class HostRuns {
 public:
  void Add(const StageCase& c, const Schedule& schedule, bool specials = false) {
    const std::string name = c.name + " rows " + std::to_string(c.stage.rows()) + " length " +
                             std::to_string(c.stage.row_length());
    Add(name, SignatureOf(c), ProgramOf(c), ProgramOf(c), {schedule}, specials);
  }

  // Runs `program`, whose results must equal those of `meant`.
  void Add(const std::string& name, const OpSignature& signature, const Program& meant,
           const Program& program, const std::vector<Schedule>& schedules, bool specials = false) {
    std::string text = name;
    for (const Schedule& schedule : schedules) {
      text += " " + schedule.ToJson(DeviceType::kCuda).dump();
    }
    Result<Candidate> candidate = EmitCuda(program, signature, schedules);
    ASSERT_TRUE(candidate.ok()) << text << ": " << candidate.status().ToString();
    ASSERT_TRUE(candidate->Validate(signature).ok()) << candidate->Validate(signature).ToString();
    runs_.push_back(
        {text, signature, meant, *std::move(candidate), program.scratch_bytes, specials});
  }

  void Go() {
    std::ostringstream code;
    code << "#include \"" CUDAFORGE_SOURCE_DIR "/tests/cpp/generators/cuda_shim.h\"\n"
         << CudaPrelude();
    for (size_t r = 0; r < runs_.size(); ++r) {
      for (const Launch& launch : runs_[r].candidate.plan.launches) {
        code << "#define " << launch.kernel << " " << Symbol(r, launch) << "\n";
      }
      code << runs_[r].candidate.source.code.substr(CudaPrelude().size());
      for (const Launch& launch : runs_[r].candidate.plan.launches) {
        code << "#undef " << launch.kernel << "\n";
      }
    }
    Result<TempDir> folder = TempDir::Create("emit_cuda");
    ASSERT_TRUE(folder.ok());
    const std::string source = folder->path() + "/k.cc", library = folder->path() + "/k.so";
    ASSERT_TRUE(WriteFileAtomic(source, code.str()).ok());
    const Result<ProcessResult> compiled =
        RunProcess({"c++", "-std=c++20", "-O1", "-fPIC", "-shared", "-w", "-ffp-contract=off", "-o",
                    library, source},
                   {.timeout_ms = 240'000, .join_errors = true});
    ASSERT_TRUE(compiled.ok());
    ASSERT_EQ(compiled->exit_code, 0) << compiled->output.substr(0, 4000);
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(handle, nullptr) << dlerror();
    launch_ = reinterpret_cast<LaunchFn>(dlsym(handle, "ShimLaunch"));
    ASSERT_NE(launch_, nullptr);
    for (size_t r = 0; r < runs_.size(); ++r) {
      SCOPED_TRACE(runs_[r].text);
      std::vector<void*> kernels;
      for (const Launch& launch : runs_[r].candidate.plan.launches) {
        kernels.push_back(dlsym(handle, Symbol(r, launch).c_str()));
      }
      RunOne(runs_[r], kernels);
    }
    dlclose(handle);
  }

 private:
  using LaunchFn = int (*)(void (*)(), void**, int, int64_t, int);
  struct One {
    std::string text;
    OpSignature signature;
    Program meant;
    Candidate candidate;
    std::vector<int64_t> scratch_bytes;
    bool specials;
  };

  static std::string Symbol(size_t run, const Launch& launch) {
    return "run" + std::to_string(run) + "_" + launch.kernel;
  }

  static void AddPoisoned(int64_t bytes, std::vector<GuardedBuffer>& buffers) {
    buffers.emplace_back(static_cast<size_t>(bytes));
    memset(buffers.back().data(), 0x7b, static_cast<size_t>(bytes));
  }

  void RunOne(const One& run, const std::vector<void*>& kernels) {
    const OpSignature& signature = run.signature;
    const std::vector<Memory> inputs = MakeInputs(signature, run.specials);
    std::vector<GuardedBuffer> in, out, scratch;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const int64_t size = DTypeSize(signature.inputs[i].dtype);
      in.emplace_back(static_cast<size_t>(signature.inputs[i].StorageBytes()));
      for (size_t e = 0; e < inputs[i].size(); ++e) {
        Put(in[i].data() + static_cast<int64_t>(e) * size, signature.inputs[i].dtype, inputs[i][e]);
      }
    }
    for (size_t o = 0; o < signature.outputs.size(); ++o) {
      AddPoisoned(signature.output_spec(o).StorageBytes(), out);
    }
    for (int64_t bytes : run.scratch_bytes) AddPoisoned(bytes, scratch);
    for (size_t l = 0; l < kernels.size(); ++l) {
      ASSERT_NE(kernels[l], nullptr);
      const Launch& launch = run.candidate.plan.launches[l];
      std::vector<void*> args;
      for (const LaunchArg& arg : launch.args) {
        std::vector<GuardedBuffer>& buffers = arg.kind == LaunchArg::Kind::kInput    ? in
                                              : arg.kind == LaunchArg::Kind::kOutput ? out
                                                                                     : scratch;
        args.push_back(buffers.at(static_cast<size_t>(arg.index)).data());
      }
      const int64_t grid = launch.grid[0].Evaluate(signature).value();
      const int64_t threads = launch.block[0].Evaluate(signature).value();
      ASSERT_EQ(launch_(reinterpret_cast<void (*)()>(kernels[l]), args.data(),
                        static_cast<int>(args.size()), grid, static_cast<int>(threads)),
                0)
          << "threads disagree on a barrier\n"
          << run.candidate.source.code.substr(CudaPrelude().size());
    }
    for (const GuardedBuffer& buffer : scratch) {
      EXPECT_TRUE(buffer.Intact()) << "written outside a scratch buffer";
    }
    const std::vector<Memory> expected = ProgramRunner::Run(run.meant, signature, inputs);
    for (size_t i = 0; i < out.size(); ++i) {
      EXPECT_TRUE(out[i].Intact()) << "written outside output " << i;
      const DType t = signature.output_spec(i).dtype;
      for (size_t e = 0; e < expected[i].size(); ++e) {
        const Num got = Get(out[i].data() + static_cast<int64_t>(e) * DTypeSize(t), t);
        const Num want = expected[i][e];
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

}  // namespace cudaforge::rows
