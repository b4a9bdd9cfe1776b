// The kernels of product_few_sm90.h, product_batch_sm90.h, and product_f32.h for Hopper, run on the
// host by hopper_shim.h.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "generators/tiles/product_batch_sm90.h"
#include "generators/tiles/product_f32.h"
#include "generators/tiles/product_few_sm90.h"
#include "tests/cpp/generators/region.h"
#include "tests/cpp/generators/tiles/host_kernels.h"

namespace cudaforge {
namespace {

using rows::Region;
using rows::Spec;

// out = a b, or relu(a b), + the residuals, with A and B as their rows, in the layouts of the
// signature.
struct HostCase {
  int64_t m, k, n;
  bool a_in_columns, b_in_columns, relu;
  size_t schedule;    // of tiles::FewSchedules; without `few` parts of each sum
  int many_bad;       // every `many_bad`th row of the small operand cannot be split; 0: a few
  int residuals = 0;  // matrices that are added
  bool few = true;    // of product_few_sm90.h

  OpSignature Signature() const {
    const auto matrix = [](int64_t rows, int64_t columns, bool in_columns) {
      return in_columns ? Spec({rows, columns}, DType::kFloat32, {1, rows}) : Spec({rows, columns});
    };
    Region region;
    const Json a = region.Input(matrix(m, k, a_in_columns));
    const Json b = region.Input(matrix(k, n, b_in_columns));
    int out = region.Call("mm", {a, b}, {Spec({m, n})});
    if (relu) out = region.Call("relu", {rows::Out(out)}, {Spec({m, n})});
    for (int i = 0; i < residuals; ++i)
      out = region.Call("add.Tensor", {rows::Out(out), region.Input(Spec({m, n}))}, {Spec({m, n})});
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

// Within 2^-18 of the sum of magnitudes; NaN and infinities as in float64.
void ExpectSums(const RowsOfCase& a, const RowsOfCase& b, const std::vector<float>& out, bool relu,
                const std::vector<std::vector<float>>& residuals) {
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < b.rows; ++j) {
      double sum = 0, size = 0;
      for (int64_t l = 0; l < a.k; ++l) {
        const double product = static_cast<double>(a.at(i, l)) * b.at(j, l);
        sum += product;
        size += std::fabs(product);
      }
      if (relu && sum < 0) sum = 0;
      const auto at = static_cast<size_t>(i * b.rows + j);
      for (const std::vector<float>& residual : residuals) {
        sum += residual[at];
        size += std::fabs(residual[at]);
      }
      const float got = out[at];
      const bool right = std::isfinite(sum) ? std::fabs(got - sum) <= 0x1p-18 * (size + 0x1p-126)
                         : std::isnan(sum)  ? std::isnan(got)
                                            : static_cast<double>(got) == sum;
      ASSERT_TRUE(right) << "at " << i << ", " << j << ": " << got << ", not " << sum;
    }
  }
}

// In place of MmaText(mma), if both operands are in shared memory.
constexpr const char* kMultiply =
    "template <int kAdd, int kSize> void Mma(float (&d)[kSize], unsigned long long a, unsigned "
    "long "
    "long b) { ShimMultiply<false, true, true>(d, a, b, kAdd != 0); }\n";

void RunCase(const HostCase& c) {
  const OpSignature signature = c.Signature();
  const auto contraction = tiles::ReadContraction(signature);
  ASSERT_TRUE(contraction.ok());
  constexpr int64_t kMultiprocessors = 4;
  Candidate candidate;
  tiles::MmaShape mma;
  std::string multiply;
  const int64_t few = std::min(c.m, c.n), of_tile = few > 128 ? (few + 1) / 2 : few;
  if (c.few) {
    ASSERT_TRUE(tiles::CanMakeFew(*contraction).ok());
    const auto schedules = tiles::FewSchedules(*contraction, kMultiprocessors);
    candidate = tiles::WriteFew(*contraction, schedules.at(c.schedule), kMultiprocessors);
    mma = {.n = static_cast<int>((of_tile + 7) / 8 * 8), .a_in_registers = true};
  } else {
    candidate = tiles::WriteF32(*contraction, static_cast<int64_t>(c.schedule), kMultiprocessors);
    mma = {.n = 128};
    multiply = kMultiply;
  }
  SCOPED_TRACE(signature.Describe() + candidate.params.dump());

  std::mt19937 random(3);
  const bool a_is_small = c.m < c.n;
  const RowsOfCase a(c.m, c.k, random, a_is_small ? c.many_bad : 0);
  const RowsOfCase b(c.n, c.k, random, a_is_small ? 0 : c.many_bad);
  std::vector<float> a_memory = a.Memory(!c.a_in_columns), b_memory = b.Memory(c.b_in_columns);
  std::vector<float> out(static_cast<size_t>(c.m * c.n), -777.0f);
  std::vector<void*> inputs = {a_memory.data(), b_memory.data()};
  std::vector<std::vector<float>> residuals(static_cast<size_t>(c.residuals), out);
  std::normal_distribution<float> normal;
  for (std::vector<float>& residual : residuals) {
    for (float& x : residual) x = normal(random);
    inputs.push_back(residual.data());
  }
  RunOnHost(candidate, mma, multiply, inputs, {out.data()});
  ExpectSums(a, b, out, c.relu, residuals);
}

TEST(ProductFewHost, FewRowsInParts) { RunCase({72, 2052, 520, false, true, false, 0, 0}); }
TEST(ProductFewHost, FewColumnsOfWholeTiles) { RunCase({524, 2060, 9, true, true, true, 2, 0}); }
TEST(ProductFewHost, TwoTilesOfColumns) {
  RunCase({516, 2052, 131, true, true, true, 2, 0});
  RunCase({132, 2052, 520, false, true, false, 0, 16});
}
TEST(ProductFewHost, ManyRowsThatAreNotSplit) { RunCase({20, 2049, 516, true, false, true, 0, 4}); }

// Of tiles that are whole, and at edges of even and odd numbers of columns.
TEST(ProductF32Host, AddsMatricesToWholeTiles) {
  RunCase({256, 320, 256, false, true, true, 1, 0, 1, false});
  RunCase({128, 192, 128, true, false, false, 1, 0, 6, false});
}
TEST(ProductF32Host, AddsMatricesAtEdges) {
  RunCase({140, 200, 138, false, false, false, 1, 0, 2, false});
  RunCase({130, 72, 131, true, true, true, 1, 0, 1, false});
}
TEST(ProductF32Host, AddsMatricesToSumsInParts) {
  RunCase({132, 640, 136, false, true, false, 2, 0, 1, false});
}
TEST(ProductF32Host, GoesOnAfterTilesThatAreNotSplit) {
  RunCase({520, 320, 130, false, true, false, 1, 4, 1, false});
}

// a b, and the sums of A's rows or of B's columns, which keep their dimension.
void RunSums(int64_t m, int64_t k, int64_t n, bool of_b, bool in_columns, int64_t multiprocessors) {
  const auto matrix = [&](int64_t rows, int64_t columns) {
    return in_columns ? Spec({rows, columns}, DType::kFloat32, {1, rows}) : Spec({rows, columns});
  };
  Region region;
  const Json a = region.Input(matrix(m, k)), b = region.Input(matrix(k, n));
  const int sums = region.Call("sum.dim_IntList", {of_b ? b : a, {of_b ? 0 : 1}, true},
                               {of_b ? Spec({1, n}) : Spec({m, 1})});
  region.Output(sums);
  region.Output(region.Call("mm", {a, b}, {Spec({m, n})}));
  OpSignature signature = region.Signature();
  signature.device = DeviceType::kCuda;
  const auto contraction = tiles::ReadContraction(signature);
  ASSERT_TRUE(contraction.ok()) << contraction.status().ToString();
  const Candidate candidate = tiles::WriteF32(*contraction, 1, multiprocessors);
  EXPECT_TRUE(candidate.Validate(signature).ok());
  SCOPED_TRACE(signature.Describe() + candidate.params.dump());

  std::mt19937 random(7);
  const RowsOfCase as(m, k, random, 0), bs(n, k, random, 0);
  std::vector<float> a_memory = as.Memory(!in_columns), b_memory = bs.Memory(in_columns);
  std::vector<float> out(static_cast<size_t>(m * n), -777.0f);
  std::vector<float> of_rows(static_cast<size_t>(of_b ? n : m) + 1, -777.0f);
  RunOnHost(candidate, {.n = 128}, kMultiply, {a_memory.data(), b_memory.data()},
            {of_rows.data(), out.data()});
  ExpectSums(as, bs, out, false, {});
  const RowsOfCase& summed = of_b ? bs : as;
  for (int64_t r = 0; r < summed.rows; ++r) {
    double sum = 0, size = 0;
    for (int64_t i = 0; i < k; ++i) {
      sum += summed.at(r, i);
      size += std::fabs(summed.at(r, i));
    }
    const float got = of_rows[static_cast<size_t>(r)];
    if (std::isfinite(sum)) {
      EXPECT_NEAR(got, sum, 0x1p-21 * size) << "row " << r;
    } else if (std::isnan(sum)) {
      EXPECT_TRUE(std::isnan(got)) << "row " << r;
    } else {
      EXPECT_EQ(static_cast<double>(got), sum) << "row " << r;
    }
  }
  EXPECT_EQ(of_rows.back(), -777.0f);
}

TEST(ProductF32Host, AddsUpRowsOfAnOperand) {
  RunSums(130, 200, 136, false, false, 4);
  RunSums(130, 200, 136, false, true, 4);
  RunSums(130, 200, 141, true, false, 4);
  RunSums(130, 200, 141, true, true, 4);
}
TEST(ProductF32Host, AddsUpRowsInPieces) {
  RunSums(70, 4100, 66, true, false, 16);
  RunSums(70, 4100, 66, false, false, 16);
}

// A batch of products, each with rows of all kinds.
void RunBatch(int64_t batch, int64_t m, int64_t k, int64_t n, bool a_in_columns, bool b_in_columns,
              bool one_hot_rows, bool infinite_rows) {
  const auto matrices = [&](int64_t rows, int64_t columns, bool in_columns) {
    const std::vector<int64_t> strides = in_columns
                                             ? std::vector<int64_t>{rows * columns, 1, rows}
                                             : std::vector<int64_t>{rows * columns, columns, 1};
    return Spec({batch, rows, columns}, DType::kFloat32, strides);
  };
  Region region;
  const Json a = region.Input(matrices(m, k, a_in_columns));
  const Json b = region.Input(matrices(k, n, b_in_columns));
  const TensorSpec out_spec = Spec({batch, m, n});
  const int sum = region.Call("bmm", {a, b}, {out_spec});
  region.Call("add.Tensor", {rows::Out(sum), region.Input(out_spec)}, {out_spec});
  OpSignature signature = region.Signature();
  signature.device = DeviceType::kCuda;
  const auto contraction = tiles::ReadContraction(signature);
  ASSERT_TRUE(contraction.ok());
  const Candidate candidate = tiles::WriteBatch(*contraction, 3);
  SCOPED_TRACE(signature.Describe() + candidate.params.dump());

  std::mt19937 random(5);
  std::vector<RowsOfCase> as, bs;
  std::vector<float> a_memory, b_memory;
  for (int64_t i = 0; i < batch; ++i) {
    const auto add = [&](std::vector<RowsOfCase>& to, std::vector<float>& memory, int64_t rows,
                         bool rows_hold_k) {
      RowsOfCase& added = to.emplace_back(rows, k, random, 0);
      for (int64_t j = 0; j < k; ++j) {
        if (!one_hot_rows) added.at(1, j) = 0.5f;
        if (!infinite_rows) added.at(6, j) = added.at(7, j) = 0.5f;
      }
      const std::vector<float> one = added.Memory(rows_hold_k);
      memory.insert(memory.end(), one.begin(), one.end());
    };
    add(as, a_memory, m, !a_in_columns);
    add(bs, b_memory, n, b_in_columns);
  }
  const auto size = static_cast<size_t>(m * n);
  std::vector<float> out(size * static_cast<size_t>(batch), -777.0f), residual = out;
  std::normal_distribution<float> normal;
  for (float& x : residual) x = normal(random);
  const tiles::MmaShape mma = {.n = n <= 64 ? 64 : 128};
  RunOnHost(candidate, mma, kMultiply, {a_memory.data(), b_memory.data(), residual.data()},
            {out.data()});
  for (size_t i = 0; i < as.size(); ++i) {
    const auto of_matrix = [&](const std::vector<float>& all) {
      const auto begin = all.begin() + static_cast<int64_t>(i * size);
      return std::vector<float>(begin, begin + static_cast<int64_t>(size));
    };
    ExpectSums(as[i], bs[i], of_matrix(out), false, {of_matrix(residual)});
  }
}

TEST(ProductBatchHost, MultipliesInEveryLayout) {
  RunBatch(4, 128, 64, 128, false, true, false, false);
  RunBatch(3, 128, 128, 64, false, false, false, false);
  RunBatch(4, 136, 68, 40, true, false, false, false);
  RunBatch(2, 132, 200, 132, true, true, false, false);
}
TEST(ProductBatchHost, HasRowsOfOddAndEvenLength) {
  RunBatch(2, 136, 72, 131, true, true, false, false);
  RunBatch(2, 72, 72, 134, true, true, false, false);
}
// The first row of causal attention is one.
TEST(ProductBatchHost, ComputesOneHotRowsInFloat32) {
  RunBatch(4, 128, 128, 64, false, false, true, false);
  RunBatch(2, 136, 72, 132, true, true, true, false);
}
TEST(ProductBatchHost, ComputesTilesInFloat32) {
  RunBatch(3, 68, 72, 196, false, true, true, true);
}

}  // namespace
}  // namespace cudaforge
