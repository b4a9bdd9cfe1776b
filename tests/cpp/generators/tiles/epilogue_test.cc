#include "generators/tiles/epilogue.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "base/subprocess.h"
#include "generators/rows/cuda/prelude.h"
#include "generators/tiles/contraction.h"
#include "tests/cpp/generators/cuda_host_runs.h"
#include "tests/cpp/generators/region.h"

namespace cudaforge::tiles {
namespace {

using rows::In;
using rows::Out;
using rows::Region;
using rows::Spec;

// Calls the epilogue of a region on a host for every place, `V` columns at a time.
std::string Caller(const EpilogueText& epilogue, int width) {
  std::string text = "#include \"" CUDAFORGE_SOURCE_DIR "/tests/cpp/generators/cuda_shim.h\"\n" +
                     std::string(rows::CudaPrelude()) + epilogue.text + R"(
struct Any {
  void* p;
  template <class T> operator T*() const { return static_cast<T*>(p); }
};
extern "C" void Call(void** buffers, const float* sums, int batches, int rows, int columns) {
  constexpr int V = )" +
                     std::to_string(width) + ";\n  const Epilogue epilogue = {";
  for (size_t i = 0; i < epilogue.buffers.size(); ++i) {
    text += (i == 0 ? "Any{buffers[" : ", Any{buffers[") + std::to_string(i) + "]}";
  }
  return text + R"(};
  for (int b = 0; b < batches; ++b)
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < columns; c += V) {
        float some[V];
        for (int i = 0; i < V; ++i) some[i] = sums[(b * rows + r) * columns + c + i];
        epilogue.Store<V>(b, r, c, some, epilogue.Load<V>(b, r, c));
      }
}
)";
}

using Values = std::vector<double>;

// The outputs, from inputs and sums in the order of memory.
std::vector<Values> OutputsOf(const OpSignature& signature, const std::vector<Values>& inputs,
                              const std::vector<float>& sums, int width) {
  const Result<Contraction> contraction = ReadContraction(signature);
  EXPECT_TRUE(contraction.ok()) << contraction.status().ToString();
  const EpilogueText epilogue = WriteEpilogueText(*contraction);
  const Result<TempDir> folder = TempDir::Create("epilogue");
  const std::string source = folder->path() + "/e.cc", library = folder->path() + "/e.so";
  EXPECT_TRUE(WriteFileAtomic(source, Caller(epilogue, width)).ok());
  const Result<ProcessResult> compiled =
      RunProcess({"c++", "-std=c++20", "-O1", "-fPIC", "-shared", "-w", "-o", library, source},
                 {.timeout_ms = 240'000, .join_errors = true});
  EXPECT_EQ(compiled->exit_code, 0) << compiled->output.substr(0, 4000);
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    ADD_FAILURE() << dlerror();
    return {};
  }
  std::vector<rows::GuardedBuffer> in, out;
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const TensorSpec& spec = signature.inputs[i];
    in.emplace_back(static_cast<size_t>(spec.StorageBytes()));
    for (size_t e = 0; e < inputs[i].size(); ++e) {
      rows::Put(in[i].data() + static_cast<int64_t>(e) * DTypeSize(spec.dtype), spec.dtype,
                {inputs[i][e], 0});
    }
  }
  for (size_t o = 0; o < signature.outputs.size(); ++o)
    out.emplace_back(static_cast<size_t>(signature.output_spec(o).StorageBytes()));
  std::vector<void*> buffers;
  for (const rows::BufferRef& ref : epilogue.buffers) {
    const auto index = static_cast<size_t>(ref.index);
    buffers.push_back(ref.kind == rows::BufferKind::kInput ? in[index].data() : out[index].data());
  }
  const auto call =
      reinterpret_cast<void (*)(void**, const float*, int, int, int)>(dlsym(handle, "Call"));
  call(buffers.data(), sums.data(), static_cast<int>(contraction->batch),
       static_cast<int>(contraction->m), static_cast<int>(contraction->n));
  std::vector<Values> results;
  for (size_t o = 0; o < out.size(); ++o) {
    EXPECT_TRUE(out[o].Intact()) << "written outside output " << o;
    const TensorSpec& spec = signature.output_spec(o);
    Values& values = results.emplace_back();
    for (int64_t e = 0; e < spec.numel(); ++e)
      values.push_back(rows::Get(out[o].data() + e * DTypeSize(spec.dtype), spec.dtype).f);
  }
  dlclose(handle);
  return results;
}

// Multiples of 1/8 in [-4, 4).
Values Drawn(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  Values values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<int>(random() % 64) / 8.0 - 4);
  return values;
}

std::vector<float> AsFloats(const Values& values) { return {values.begin(), values.end()}; }

double Gelu(double x) { return 0.5 * x * (1 + std::erf(x * std::sqrt(0.5))); }

TEST(Epilogue, ComputesALinearLayer) {
  constexpr int64_t kM = 5, kN = 24, kPitch = kN + 2;  // its rows hold no more than two at once
  Region region;
  const Json bias = region.Input(Spec({kN}));
  const Json a = region.Input(Spec({kM, 4})), b = region.Input(Spec({4, kN}));
  const Json residual = region.Input(Spec({kM, kN}, DType::kFloat32, {kPitch, 1}));
  const TensorSpec out = Spec({kM, kN});
  const int sum = region.Call("addmm", {bias, a, b}, {out});
  const int active = region.Call("gelu", {Out(sum)}, {out});
  region.Output(region.Call("add.Tensor", {Out(active), residual}, {out}));
  region.Output(sum);
  const std::vector<Values> inputs = {Drawn(kN, 1), {}, {}, Drawn((kM - 1) * kPitch + kN, 2)};
  const Values sums = Drawn(kM * kN, 3);
  for (int width : {1, 2, 4, 8}) {
    SCOPED_TRACE(width);
    const std::vector<Values> got = OutputsOf(region.Signature(), inputs, AsFloats(sums), width);
    ASSERT_EQ(got.size(), 2u);
    for (size_t i = 0; i < sums.size(); ++i) {
      const double x = sums[i] + inputs[0][i % kN];
      ASSERT_NEAR(got[0][i], Gelu(x) + inputs[3][i / kN * kPitch + i % kN], 1e-5) << i;
      ASSERT_EQ(got[1][i], x) << i;
    }
  }
}

// Scaled by row and batch, in bfloat16, into a result whose columns are contiguous.
TEST(Epilogue, ReadsRowsAndWritesStrides) {
  constexpr int64_t kBatch = 2, kM = 3, kN = 16;
  constexpr DType kType = DType::kBFloat16;
  Region region;
  const Json a = region.Input(Spec({kBatch, kM, 8}, kType));
  const Json b = region.Input(Spec({kBatch, 8, kN}, kType));
  const Json scale = region.Input(Spec({kBatch, kM, 1}, kType));
  const TensorSpec out = Spec({kBatch, kM, kN}, kType);
  const TensorSpec turned = Spec({kBatch, kM, kN}, kType, {kM * kN, 1, kM});
  const int sum = region.Call("bmm", {a, b}, {out});
  region.Call("mul.Tensor", {Out(sum), scale}, {turned});
  const std::vector<Values> inputs = {{}, {}, Drawn(kBatch * kM, 1)};
  const Values sums = Drawn(kBatch * kM * kN, 2);
  for (int width : {1, 8}) {
    SCOPED_TRACE(width);
    const std::vector<Values> got = OutputsOf(region.Signature(), inputs, AsFloats(sums), width);
    ASSERT_EQ(got.size(), 1u);
    for (int64_t i = 0; i < kBatch * kM * kN; ++i) {
      const int64_t row = i / kN, column = i % kN;
      const int64_t at = row / kM * kM * kN + row % kM + column * kM;
      const double want = sums[static_cast<size_t>(i)] * inputs[2][static_cast<size_t>(row)];
      ASSERT_NEAR(got[0][static_cast<size_t>(at)], want, std::fabs(want) / 256) << i;
    }
  }
}

// x / (1 + exp(-x)), as graphs have silu, without a division.
TEST(Epilogue, DividesByNoSigmoid) {
  constexpr int64_t kM = 2, kN = 8;
  constexpr DType kType = DType::kBFloat16;
  const TensorSpec half = Spec({kM, kN}, kType), single = Spec({kM, kN});
  for (const bool one_first : {false, true}) {
    Region region;
    const Json a = region.Input(Spec({kM, 64}, kType)), b = region.Input(Spec({64, kN}, kType));
    const int x = region.Call("_to_copy", {Out(region.Call("mm", {a, b}, {half}))}, {single});
    const int power = region.Call("exp", {Out(region.Call("neg", {Out(x)}, {single}))}, {single});
    const Json terms[] = {Out(power), 1};
    const int sum = region.Call("add.Tensor", {terms[one_first], terms[!one_first]}, {single});
    const int silu = region.Call("div.Tensor", {Out(x), Out(sum)}, {single});
    region.Output(region.Call("_to_copy", {Out(silu)}, {half}));
    const OpSignature signature = region.Signature();
    EXPECT_NE(WriteEpilogueText(*ReadContraction(signature)).text.find(" * cf_sigmoid("),
              std::string::npos);
    const Values sums = {-INFINITY, -1e4, -104, -88.5, -20, -1,  -0.0,     0.0,
                         1e-3,      1,    20,   88.5,  104, 1e4, INFINITY, NAN};
    const std::vector<Values> got = OutputsOf(signature, {{}, {}}, AsFloats(sums), 8);
    ASSERT_EQ(got.size(), 1u);
    for (size_t i = 0; i < sums.size(); ++i) {
      const double want = sums[i] / (1 + std::exp(-sums[i]));
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(got[0][i])) << sums[i];
      } else if (std::isinf(want)) {
        EXPECT_EQ(got[0][i], want);
      } else {
        EXPECT_NEAR(got[0][i], want, std::fabs(want) / 128 + 1e-36) << sums[i];
      }
    }
  }
}

TEST(Epilogue, OffsetsBeyond32BitsAreComputedIn64) {
  constexpr int64_t kM = 65536, kN = 40960;
  Region region;
  const Json a = region.Input(Spec({kM, 256})), b = region.Input(Spec({256, kN}));
  const Json columns = region.Input(Spec({kM, kN}, DType::kFloat32, {1, kM}));
  const int sum = region.Call("mm", {a, b}, {Spec({kM, kN})});
  region.Call("add.Tensor", {Out(sum), columns}, {Spec({kM, kN})});
  const std::string text = WriteEpilogueText(*ReadContraction(region.Signature())).text;
  EXPECT_NE(text.find("in2 + (o0 + c0 * 65536"), std::string::npos) << text;
  EXPECT_NE(text.find("out0 + (o0 * 40960 + column)"), std::string::npos) << text;
}

TEST(Epilogue, MatricesAreThoseThatHaveEachPlacesOwnValueInRows) {
  Region region;
  const TensorSpec spec = Spec({64, 96});
  const Json a = region.Input(Spec({64, 32})), b = region.Input(Spec({32, 96}));
  int out = region.Call("mm", {a, b}, {spec});
  for (const TensorSpec& added :
       {Spec({96}), Spec({64, 1}), spec, Spec({64, 96}, DType::kFloat32, {1, 64})}) {
    out = region.Call("add.Tensor", {Out(out), region.Input(added)}, {spec});
  }
  const std::string text = WriteEpilogueText(*ReadContraction(region.Signature())).text;
  EXPECT_NE(text.find("kMatricesRead = 1 }"), std::string::npos) << text;
  EXPECT_NE(text.find("visit(in4 + (o0 * 96 + column));"), std::string::npos) << text;
}

// What follows a product in a half type sees it rounded: 1 + 2^-10 is 1.
TEST(Epilogue, RoundsSumsOfHalfTypes) {
  Region region;
  const TensorSpec spec = Spec({1, 8}, DType::kBFloat16);
  const Json a = region.Input(Spec({1, 4}, DType::kBFloat16));
  const Json b = region.Input(Spec({4, 8}, DType::kBFloat16));
  const int sum = region.Call("mm", {a, b}, {spec});
  const int less = region.Call("sub.Tensor", {Out(sum), Json(1)}, {spec});
  region.Call("mul.Tensor", {Out(less), Json(1024)}, {spec});
  const std::vector<float> sums(8, 1 + 1.0f / 1024);
  const std::vector<Values> got = OutputsOf(region.Signature(), {{}, {}}, sums, 8);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0], Values(8, 0.0));
}

}  // namespace
}  // namespace cudaforge::tiles
