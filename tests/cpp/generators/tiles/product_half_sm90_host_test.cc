// The kernels of product_half_sm90.h, run on the host by hopper_shim.h.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "generators/tiles/product_half_sm90.h"
#include "tests/cpp/generators/cuda_host_runs.h"
#include "tests/cpp/generators/region.h"
#include "tests/cpp/generators/tiles/host_kernels.h"

namespace cudaforge::tiles {
namespace {

using rows::GuardedBuffer;
using rows::Memory;
using rows::Out;
using rows::Region;
using rows::Spec;

constexpr int64_t kFewMultiprocessors = 3;

// Of float64, from the inputs: the sum of product `p` at (batch, row, column).
struct HalfCase {
  OpSignature signature;
  std::vector<Memory> inputs;
  Contraction contraction;

  explicit HalfCase(const Region& region) {
    signature = region.Signature();
    signature.device = DeviceType::kCuda;
    inputs = rows::RandomInputs(signature);
    Result<Contraction> read = ReadContraction(signature);
    EXPECT_TRUE(read.ok()) << read.status().ToString();
    contraction = *std::move(read);
  }
  double In(int input, std::initializer_list<int64_t> at) const {
    const TensorSpec& spec = signature.inputs[static_cast<size_t>(input)];
    int64_t offset = 0;
    size_t d = 0;
    for (int64_t index : at) offset += index * spec.strides[d++];
    return inputs[static_cast<size_t>(input)][static_cast<size_t>(offset)].f;
  }
  double Sum(int a, int b, int64_t row, int64_t column) const {
    double sum = 0;
    for (int64_t k = 0; k < contraction.k; ++k) sum += In(a, {row, k}) * In(b, {k, column});
    return static_cast<float>(sum);
  }
  double Rounded(double x) const {
    return signature.inputs[0].dtype == DType::kBFloat16 ? rows::RoundBF16(static_cast<float>(x))
                                                         : rows::RoundHalf(static_cast<float>(x));
  }

  using Expected = std::function<double(size_t output, int64_t row, int64_t column)>;
  void Run(const HalfSchedule& schedule, const Expected& expected) const {
    const Candidate candidate = WriteHalf(contraction, schedule, kFewMultiprocessors);
    SCOPED_TRACE(signature.Describe() + candidate.params.dump());
    ASSERT_TRUE(candidate.Validate(signature).ok());
    std::vector<GuardedBuffer> in, out;
    std::vector<void*> in_pointers, out_pointers;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const TensorSpec& spec = signature.inputs[i];
      in.emplace_back(static_cast<size_t>(spec.StorageBytes()));
      for (size_t e = 0; e < inputs[i].size(); ++e)
        rows::Put(in[i].data() + static_cast<int64_t>(e) * DTypeSize(spec.dtype), spec.dtype,
                  inputs[i][e]);
    }
    for (size_t o = 0; o < signature.outputs.size(); ++o)
      out.emplace_back(static_cast<size_t>(signature.output_spec(o).StorageBytes()));
    for (GuardedBuffer& buffer : in) in_pointers.push_back(buffer.data());
    for (GuardedBuffer& buffer : out) out_pointers.push_back(buffer.data());
    const bool bf16 = contraction.a.dtype == DType::kBFloat16;
    const MmaShape mma = {.n = static_cast<int>(schedule.n),
                          .dtype = contraction.a.dtype,
                          .a_rows_hold_k = contraction.a.rows_hold_k(),
                          .b_rows_hold_k = contraction.b.rows_hold_k()};
    const std::string instead =
        Cat("template <int kAdd, int kSize> void Mma(float (&d)[kSize], unsigned long long a, ",
            "unsigned long long b) { ShimMultiply<", bf16, ", ", mma.a_rows_hold_k, ", ",
            mma.b_rows_hold_k, ">(d, a, b, kAdd != 0); }\n");
    RunOnHost(candidate, mma, instead, in_pointers, out_pointers);
    const double ulp = bf16 ? 0x1p-8 : 0x1p-11;
    for (size_t o = 0; o < out.size(); ++o) {
      EXPECT_TRUE(out[o].Intact()) << "written outside output " << o;
      const TensorSpec& spec = signature.output_spec(o);
      for (int64_t row = 0; row < spec.sizes[0]; ++row) {
        for (int64_t column = 0; column < spec.sizes[1]; ++column) {
          const int64_t at = row * spec.strides[0] + column * spec.strides[1];
          const double got = rows::Get(out[o].data() + at * DTypeSize(spec.dtype), spec.dtype).f;
          const double want = expected(o, row, column);
          // A rounding of a sum that other orders of summation round otherwise, and of the result.
          ASSERT_NEAR(got, want, 2.5 * ulp * (std::fabs(want) + 1))
              << "output " << o << " at " << row << ", " << column;
        }
      }
    }
  }
};

double ExactSilu(double x) { return x / (1 + std::exp(-x)); }

// relu(a b + bias) + residual, over the edges of tiles.
void RunLayer(DType dtype, int64_t m, int64_t k, int64_t n, bool a_in_columns, bool b_in_columns,
              const HalfSchedule& schedule) {
  Region region;
  const auto matrix = [&](int64_t rows, int64_t columns, bool in_columns) {
    return in_columns ? Spec({rows, columns}, dtype, {1, rows}) : Spec({rows, columns}, dtype);
  };
  const Json bias = region.Input(Spec({n}, dtype));
  const Json a = region.Input(matrix(m, k, a_in_columns)),
             b = region.Input(matrix(k, n, b_in_columns));
  const Json residual = region.Input(Spec({m, n}, dtype));
  const TensorSpec out = Spec({m, n}, dtype);
  const int sum = region.Call("addmm", {bias, a, b}, {out});
  const int active = region.Call("relu", {Out(sum)}, {out});
  region.Call("add.Tensor", {Out(active), residual}, {out});
  const HalfCase c(region);
  c.Run(schedule, [&](size_t, int64_t row, int64_t column) {
    const double sum_here = c.Rounded(c.Sum(1, 2, row, column) + c.In(0, {column}));
    return std::max(sum_here, 0.0) + c.In(3, {row, column});
  });
}

constexpr DType kBF16Type = DType::kBFloat16;

TEST(ProductHalfHost, TilesThatTwoWarpgroupsShare) {
  RunLayer(kBF16Type, 200, 136, 264, false, true, {256, 2, 1});
  RunLayer(DType::kFloat16, 136, 72, 392, true, false, {192, 2, 1});
}

TEST(ProductHalfHost, TilesInTurns) {
  RunLayer(kBF16Type, 264, 200, 264, false, false, {128, 1, 1});
  RunLayer(kBF16Type, 136, 264, 200, true, true, {64, 1, 1});
}

TEST(ProductHalfHost, ResultsThatNoRowOf16BytesHolds) {
  RunLayer(kBF16Type, 130, 64, 131, false, true, {128, 1, 1});
  RunLayer(kBF16Type, 130, 64, 134, false, true, {64, 1, 1});
}

TEST(ProductHalfHost, SumsInParts) {
  RunLayer(kBF16Type, 136, 1024, 136, false, true, {128, 1, 3});
  RunLayer(kBF16Type, 136, 512, 133, false, true, {128, 1, 2});
  RunLayer(kBF16Type, 136, 512, 134, false, true, {128, 1, 2});
}

void RunApart(int products, const HalfSchedule& schedule) {
  constexpr int64_t kM = 136, kK = 136, kN = 136;
  Region region;
  const Json x = region.Input(Spec({kM, kK}, kBF16Type));
  const TensorSpec out = Spec({kM, kN}, kBF16Type);
  for (int p = 0; p < products; ++p) {
    const Json w = region.Input(Spec({kK, kN}, kBF16Type, {1, kK}));
    const Json bias = region.Input(Spec({kN}, kBF16Type));
    region.Output(region.Call("addmm", {bias, x, w}, {out}));
  }
  const HalfCase c(region);
  ASSERT_TRUE(c.contraction.is_apart());
  c.Run(schedule, [&](size_t output, int64_t row, int64_t column) {
    const int w = 1 + 2 * static_cast<int>(output);
    return c.Sum(0, w, row, column) + c.In(w + 1, {column});
  });
}

TEST(ProductHalfHost, ProductsApart) {
  RunApart(3, {64, 1, 1});
  RunApart(2, {128, 1, 2});  // the last tiles in parts
}

// silu(x w) * (x v), and the second product.
void RunGate(bool in_columns, const HalfSchedule& schedule) {
  constexpr int64_t kM = 136, kK = 136, kN = 200;
  const TensorSpec weight =
      in_columns ? Spec({kK, kN}, kBF16Type, {1, kK}) : Spec({kK, kN}, kBF16Type);
  Region region;
  const Json x = region.Input(Spec({kM, kK}, kBF16Type));
  const Json w = region.Input(weight), v = region.Input(weight);
  const TensorSpec out = Spec({kM, kN}, kBF16Type);
  const int gate = region.Call("mm", {x, w}, {out}), up = region.Call("mm", {x, v}, {out});
  const int active = region.Call("silu", {Out(gate)}, {out});
  region.Output(region.Call("mul.Tensor", {Out(active), Out(up)}, {out}));
  region.Output(up);
  const HalfCase c(region);
  ASSERT_TRUE(c.contraction.is_together());
  c.Run(schedule, [&](size_t output, int64_t row, int64_t column) {
    const double second = c.Rounded(c.Sum(0, 2, row, column));
    return output == 1 ? second : ExactSilu(c.Rounded(c.Sum(0, 1, row, column))) * second;
  });
}

TEST(ProductHalfHost, ProductsTogether) {
  RunGate(true, {128, 1, 1});
  RunGate(false, {256, 2, 1});
}

}  // namespace
}  // namespace cudaforge::tiles
