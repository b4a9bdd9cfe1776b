// The kernels of product_few.h, run on the host by hopper_shim.h.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/file.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "generators/tiles/device_texts.h"
#include "generators/tiles/product_few.h"
#include "generators/tiles/wgmma.h"
#include "tests/cpp/generators/region.h"

namespace cudaforge {
namespace {

using rows::Region;
using rows::Spec;

// out = relu(a b), or a b, with A and B as their rows, in the layouts of the signature.
struct HostCase {
  int64_t m, k, n;
  bool a_in_columns, b_in_columns, relu;
  size_t schedule;  // of tiles::FewSchedules
  int many_bad;     // every `many_bad`th row of the small operand cannot be split; 0: a few

  OpSignature Signature() const {
    const auto matrix = [](int64_t rows, int64_t columns, bool in_columns) {
      return in_columns ? Spec({rows, columns}, DType::kFloat32, {1, rows}) : Spec({rows, columns});
    };
    Region region;
    const Json a = region.Input(matrix(m, k, a_in_columns));
    const Json b = region.Input(matrix(k, n, b_in_columns));
    const int sum = region.Call("mm", {a, b}, {Spec({m, n})});
    if (relu) region.Call("relu", {rows::Out(sum)}, {Spec({m, n})});
    OpSignature signature = region.Signature();
    signature.device = DeviceType::kCuda;
    return signature;
  }
};

// A matrix of k in rows.
struct RowsOfCase {
  int64_t rows, k;
  std::vector<float> x;

  float& at(int64_t row, int64_t i) { return x[static_cast<size_t>(row * k + i)]; }
  float at(int64_t row, int64_t i) const { return x[static_cast<size_t>(row * k + i)]; }

  RowsOfCase(int64_t rows_, int64_t k_, std::mt19937& random, int many_bad)
      : rows(rows_), k(k_), x(static_cast<size_t>(rows_ * k_)) {
    std::normal_distribution<float> normal;
    for (float& v : x) v = normal(random);
    if (rows < 8) return;
    for (int64_t i = 0; i < k; ++i) {
      at(1, i) = i == 7 ? 3.0f : 0.0f;              // sparse
      at(2, i) = 0;                                 // zeros
      at(3, i) *= i == 5 ? 1.0f : 0x1p-35f;         // one large element...
      at(4, i) *= i == 5 ? 0.0f : 0x1p-30f;         // ...next to which others lose bits
      at(5, i) *= i % 3 == 0 ? 0x1p-40f : 0x1p20f;  // mixed
      for (int64_t r = 8; many_bad > 0 && r < rows; r += many_bad) at(r, i) *= 0x1p-105f;
    }
    at(6, 11) = std::numeric_limits<float>::infinity();
    at(7, k - 1) = std::numeric_limits<float>::quiet_NaN();
  }
  // In memory: rows in one piece, or elements of one k.
  std::vector<float> Memory(bool rows_hold_k) const {
    if (rows_hold_k) return x;
    std::vector<float> memory(x.size());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < k; ++i) memory[static_cast<size_t>(i * rows + r)] = at(r, i);
    }
    return memory;
  }
};

void Erase(std::string& code, const std::string& text) {
  const size_t at = code.find(text);
  if (at != std::string::npos) code.erase(at, text.size());
}

// The candidate's text for the shim, and Run(inputs, output, scratch), which launches its kernels.
std::string HostText(const Candidate& candidate, int64_t few) {
  std::string code = candidate.source.code;
  Erase(code, "#include <cuda_fp16.h>\n");
  for (int i = 0; i < 2; ++i)  // in RunPipeline, which is not used, and in Product
    Erase(code, "extern __shared__ __align__(1024) unsigned char dynamic_memory[];");
  for (const char* name : {"device/barrier.cuh", "device/bulk_copy.cuh", "device/tensor_copy.cuh",
                           "device/wgmma.cuh", "tiles/warps_sm90.cuh"})
    Erase(code, tiles::DeviceText({name}));
  Erase(code, tiles::MmaText({.n = static_cast<int>((few + 7) / 8 * 8), .a_in_registers = true}));
  const auto number = [](const IntExpr& expr) { return expr.Evaluate({}).value(); };
  const TensorMap& map = candidate.plan.tensor_maps[0];
  std::string run =
      Cat("extern \"C\" int Run(void** in, void* out, void** scratch) {\n",
          "const CfTensorMap map = {(const unsigned char*)in[", map.of.index, "], {",
          number(map.sizes[0]), ", ", number(map.sizes[1]), ", ", number(map.sizes[2]), "}, {",
          number(map.strides[0]), ", ", number(map.strides[1]), "}, {", number(map.box[0]), ", ",
          number(map.box[1]), "}};\nint failed = 0;\n");
  for (const Launch& launch : candidate.plan.launches) {
    std::string args;
    for (const LaunchArg& arg : launch.args) {
      args += args.empty() ? "" : ", ";
      args += arg.kind == LaunchArg::Kind::kTensorMap ? "map"
              : arg.kind == LaunchArg::Kind::kOutput
                  ? "ShimPointer{out}"
                  : Cat("ShimPointer{", arg.kind == LaunchArg::Kind::kInput ? "in[" : "scratch[",
                        arg.index, "]}");
    }
    run += Cat("failed += ShimRun(", number(launch.grid[0]), ", ", number(launch.block[0]),
               ", [&] { ", launch.kernel, "(", args, "); });\n");
  }
  return Cat("#include \"" CUDAFORGE_SOURCE_DIR "/tests/cpp/generators/cuda_shim.h\"\n",
             "#include \"" CUDAFORGE_SOURCE_DIR "/tests/cpp/generators/tiles/hopper_shim.h\"\n",
             code, run, "return failed;\n}\n");
}

using RunFunction = int (*)(void** in, void* out, void** scratch);

// Compiles it into `folder`. Null if that fails. Libraries are not to share the statics of their
// functions, which differ in size.
RunFunction CompileForHost(const std::string& text, const std::string& folder) {
  const std::string source = folder + "/k.cc", library = folder + "/k.so";
  EXPECT_TRUE(WriteFileAtomic(source, text).ok());
  const Result<ProcessResult> compiled =
      RunProcess({"c++", "-std=c++20", "-O1", "-fPIC", "-shared", "-w", "-ffp-contract=off",
                  "-fno-strict-aliasing", "-fno-gnu-unique", "-o", library, source},
                 {.timeout_ms = 240'000, .join_errors = true});
  EXPECT_TRUE(compiled.ok());
  if (!compiled.ok()) return nullptr;
  EXPECT_EQ(compiled->exit_code, 0) << compiled->output.substr(0, 4000);
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(handle, nullptr) << dlerror();
  return handle == nullptr ? nullptr : reinterpret_cast<RunFunction>(dlsym(handle, "Run"));
}

// Within 2^-18 of the sum of magnitudes; NaN and infinities as in float64.
void ExpectSums(const RowsOfCase& a, const RowsOfCase& b, const std::vector<float>& out,
                bool relu) {
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < b.rows; ++j) {
      double sum = 0, size = 0;
      for (int64_t l = 0; l < a.k; ++l) {
        const double product = static_cast<double>(a.at(i, l)) * b.at(j, l);
        sum += product;
        size += std::fabs(product);
      }
      if (relu && sum < 0) sum = 0;
      const float got = out[static_cast<size_t>(i * b.rows + j)];
      const bool right = std::isfinite(sum) ? std::fabs(got - sum) <= 0x1p-18 * (size + 0x1p-126)
                         : std::isnan(sum)  ? std::isnan(got)
                                            : static_cast<double>(got) == sum;
      ASSERT_TRUE(right) << "at " << i << ", " << j << ": " << got << ", not " << sum;
    }
  }
}

void RunOnHost(const HostCase& c) {
  const OpSignature signature = c.Signature();
  const auto contraction = tiles::ReadContraction(signature);
  ASSERT_TRUE(contraction.ok());
  ASSERT_TRUE(tiles::CanMakeFew(*contraction).ok());
  constexpr int64_t kMultiprocessors = 4;
  const auto schedules = tiles::FewSchedules(*contraction, kMultiprocessors);
  const Candidate candidate =
      tiles::WriteFew(*contraction, schedules.at(c.schedule), kMultiprocessors);
  SCOPED_TRACE(signature.Describe() + candidate.params.dump());

  std::mt19937 random(3);
  const bool a_is_small = c.m < c.n;
  const RowsOfCase a(c.m, c.k, random, a_is_small ? c.many_bad : 0);
  const RowsOfCase b(c.n, c.k, random, a_is_small ? 0 : c.many_bad);
  std::vector<float> a_memory = a.Memory(!c.a_in_columns), b_memory = b.Memory(c.b_in_columns);
  std::vector<float> out(static_cast<size_t>(c.m * c.n), -777.0f);
  struct alignas(16) Chunk {
    uint32_t words[4];
  };
  std::vector<std::vector<Chunk>> scratch;
  void* inputs[] = {a_memory.data(), b_memory.data()};
  std::vector<void*> scratch_pointers;
  for (const ScratchBuffer& buffer : candidate.plan.scratch_bytes) {
    const auto bytes = static_cast<size_t>(buffer.bytes.Evaluate({}).value());
    scratch.emplace_back(bytes / 16 + 1, Chunk{{0x7fc00000, 0x7fc00000, 0x7fc00000, 0x7fc00000}});
    scratch_pointers.push_back(scratch.back().data());
  }
  const Result<TempDir> folder = TempDir::Create("product_few");
  ASSERT_TRUE(folder.ok());
  const RunFunction run = CompileForHost(HostText(candidate, std::min(c.m, c.n)), folder->path());
  ASSERT_NE(run, nullptr);
  ASSERT_EQ(run(inputs, out.data(), scratch_pointers.data()), 0) << "threads wait for ever";
  ExpectSums(a, b, out, c.relu);
}

TEST(ProductFewHost, FewRowsInParts) { RunOnHost({72, 2052, 520, false, true, false, 0, 0}); }
TEST(ProductFewHost, FewColumnsOfWholeTiles) { RunOnHost({524, 2060, 9, true, true, true, 2, 0}); }
TEST(ProductFewHost, ManyRowsThatAreNotSplit) {
  RunOnHost({20, 2049, 516, true, false, true, 0, 4});
}

}  // namespace
}  // namespace cudaforge
