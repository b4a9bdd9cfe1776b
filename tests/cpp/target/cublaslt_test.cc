#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/dynamic_library.h"
#include "base/random.h"
#include "kernel/library_product.h"
#include "target/cuda/cublaslt_api.h"
#include "target/cuda/cublaslt_executable.h"
#include "target/cuda/driver_api.h"
#include "target/target.h"

namespace cudaforge {
namespace {

TEST(CublasLt, HasAVersion) {
  const Result<lt::Api> api = lt::Api::Open({});
  if (!api.ok()) GTEST_SKIP() << "needs cuBLASLt: set CUDAFORGE_CUDA_PATH";
  EXPECT_GE(api->GetVersion(), 120000u);
  EXPECT_EQ(lt::Version({}), std::to_string(api->GetVersion()));
  EXPECT_EQ(api->Check(15, "x").message(), "x: CUBLAS_STATUS_NOT_SUPPORTED");
  lt::Layout layout;
  EXPECT_EQ(api->LayoutInit(&layout, sizeof(layout), lt::kBFloat16, 4, 8, 4), 0);
  lt::Description description;
  EXPECT_EQ(api->DescriptionInit(&description, sizeof(description), lt::kComputeFloat32, 0), 0);
}

TEST(CublasLt, BinaryRoundTrip) {
  CublasLtBinary binary;
  binary.version = 130100;
  for (uint64_t& word : binary.algorithm.data) word = UINT64_MAX - 1;
  const Result<CublasLtBinary> decoded = CublasLtBinary::Decode(binary.Encode());
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(decoded->version, 130100);
  EXPECT_EQ(decoded->algorithm.data[7], UINT64_MAX - 1);
  for (const std::string& bad :
       {std::string(),
        std::string("\x7f"
                    "ELF"),
        std::string("{}"), std::string(R"({"library":"cublasLt","version":1})"),
        std::string(R"({"algorithm":[1,2,3,4,5,6,7,-8],)"
                    R"("library":"cublasLt","version":1})")}) {
    EXPECT_EQ(CublasLtBinary::Decode(bad).status().code(), StatusCode::kCorruption) << bad;
  }
}

uint16_t ToHalfBits(float value, DType dtype) {
  if (dtype == DType::kBFloat16) return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
  return std::bit_cast<uint16_t>(static_cast<_Float16>(value));
}
float FromHalfBits(uint16_t bits, DType dtype) {
  if (dtype == DType::kBFloat16) return std::bit_cast<float>(uint32_t{bits} << 16);
  return static_cast<float>(std::bit_cast<_Float16>(bits));
}

struct Case {
  DType dtype = DType::kBFloat16;
  int64_t batch = 1, m = 192, n = 160, k = 256;
  bool a_by_rows = true, b_by_rows = true;
  bool bias = false, residual = false;
  double alpha = 1;
};

class GpuCublasLt : public testing::Test {
 protected:
  void SetUp() override {
    if (!cu::DriverApi::Get().ok()) GTEST_SKIP() << "needs a GPU";
    if (!lt::Api::Open({}).ok()) GTEST_SKIP() << "needs cuBLASLt";
    target_ = MakeCudaTarget(0).value();
  }

  // One tensor of the region: its numbers, as stored, and its memory.
  struct Tensor {
    std::vector<float> numbers;
    DeviceBuffer memory;
  };

  Tensor Make(const std::vector<int64_t>& sizes, DType dtype) {
    int64_t count = 1;
    for (const int64_t size : sizes) count *= size;
    Tensor tensor;
    std::vector<uint16_t> bits(static_cast<size_t>(count));
    for (uint16_t& one : bits) {
      one = ToHalfBits(static_cast<float>(random_.Normal()), dtype);
      tensor.numbers.push_back(FromHalfBits(one, dtype));
    }
    tensor.memory = target_->Allocate(count * 2).value();
    EXPECT_TRUE(target_->CopyIn(tensor.memory.data(), bits.data(), count * 2).ok());
    return tensor;
  }

  void Prepare(const Case& c) {
    case_ = c;
    product_ = {};
    signature_ = {};
    tensors_.clear();
    signature_.device = DeviceType::kCuda;
    const auto input = [&](std::vector<int64_t> sizes, std::vector<int64_t> strides) {
      tensors_.push_back(Make(sizes, c.dtype));
      signature_.inputs.push_back({c.dtype, std::move(sizes), std::move(strides), 16});
      return static_cast<int>(tensors_.size()) - 1;
    };
    const auto matrix = [&](int64_t rows, int64_t columns, bool by_rows) {
      const int64_t row = by_rows ? columns : 1, column = by_rows ? 1 : rows;
      const int index = input({c.batch, rows, columns}, {rows * columns, row, column});
      return LibraryMatrix{index, row, column, rows * columns, 16};
    };
    product_.dtype = c.dtype;
    product_.batch = c.batch;
    product_.m = c.m, product_.n = c.n, product_.k = c.k;
    product_.a = matrix(c.m, c.k, c.a_by_rows);
    product_.b = matrix(c.k, c.n, c.b_by_rows);
    if (c.residual) product_.c = matrix(c.m, c.n, true);
    product_.alpha = c.alpha;
    product_.beta = c.residual ? 0.5 : 0;
    if (c.bias) product_.bias = input({c.n}, {1});
    product_.d = {0, c.n, 1, c.m * c.n, 16};
    product_.workspace_bytes = 32 << 20;
    Node node;
    node.op = "aten::bmm";
    node.args = {{{"in", 0}}, {{"in", 1}}};
    node.outputs = {{c.dtype, {c.batch, c.m, c.n}, {c.m * c.n, c.n, 1}}};
    signature_.nodes = {node};
    signature_.outputs = {{0, 0}};
    output_ = target_->Allocate(c.batch * c.m * c.n * 2).value();
  }

  Candidate At(int place) {
    product_.place = place;
    Candidate candidate;
    candidate.source = {Language::kLibrary, CanonicalJson(product_.ToJson())};
    EXPECT_TRUE(candidate.Validate(signature_).ok()) << candidate.Validate(signature_).ToString();
    return candidate;
  }

  std::unique_ptr<Executable> Load(int place) {
    const Candidate candidate = At(place);
    const CompileResult compiled = target_->Compile(candidate.source, 60'000);
    EXPECT_TRUE(compiled.ok) << compiled.log;
    if (!compiled.ok) return nullptr;
    facts_ = compiled.resources.at("cublasLtMatmul");
    auto loaded = target_->Load(compiled.binary, candidate, signature_);
    EXPECT_TRUE(loaded.ok()) << loaded.status().ToString();
    return loaded.ok() ? *std::move(loaded) : nullptr;
  }

  Status Run(const Executable& executable) {
    std::vector<void*> inputs;
    for (const Tensor& tensor : tensors_) inputs.push_back(tensor.memory.data());
    void* const outputs[] = {output_.data()};
    std::vector<void*> scratch;
    for (const int64_t bytes : executable.scratch_bytes()) {
      scratch_ = target_->Allocate(bytes).value();
      scratch.push_back(scratch_.data());
    }
    return executable.Launch(inputs, outputs, scratch, target_->launch_context());
  }

  double Expected(int64_t b, int64_t i, int64_t j) const {
    const auto at = [&](const LibraryMatrix& matrix, int64_t row, int64_t column) {
      const int64_t offset = b * matrix.batch + row * matrix.row + column * matrix.column;
      return double{
          tensors_[static_cast<size_t>(matrix.index)].numbers[static_cast<size_t>(offset)]};
    };
    double sum = 0;
    for (int64_t l = 0; l < case_.k; ++l) sum += at(product_.a, i, l) * at(product_.b, l, j);
    sum *= product_.alpha;
    if (case_.residual) sum += product_.beta * at(*product_.c, i, j);
    if (case_.bias) {
      sum += double{tensors_[static_cast<size_t>(*product_.bias)].numbers[static_cast<size_t>(j)]};
    }
    return sum;
  }

  void ExpectRight() {
    std::vector<uint16_t> bits(static_cast<size_t>(case_.batch * case_.m * case_.n));
    ASSERT_TRUE(
        target_->CopyOut(bits.data(), output_.data(), static_cast<int64_t>(bits.size()) * 2).ok());
    const double scale = case_.dtype == DType::kBFloat16 ? 0x1p-7 : 0x1p-10;
    for (int64_t b = 0; b < case_.batch; ++b) {
      for (int64_t i = 0; i < case_.m; i += 7) {
        for (int64_t j = 0; j < case_.n; j += 5) {
          const double expected = Expected(b, i, j);
          const auto flat = static_cast<size_t>((b * case_.m + i) * case_.n + j);
          ASSERT_NEAR(FromHalfBits(bits[flat], case_.dtype), expected,
                      scale * std::max(1.0, std::abs(expected)))
              << "at " << b << ", " << i << ", " << j << " of " << product_.ToJson().dump();
        }
      }
    }
  }

  std::unique_ptr<Target> target_;
  SplitMix random_{7};
  Case case_;
  LibraryProduct product_;
  OpSignature signature_;
  std::vector<Tensor> tensors_;
  DeviceBuffer output_, scratch_;
  Json facts_;
};

TEST_F(GpuCublasLt, ComputesAllLayoutsTypesAndSums) {
  std::vector<Case> cases;
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (const int layout : {0, 1, 2, 3}) {
      const bool a = layout % 2 == 0, b = layout / 2 == 0;
      cases.push_back({.dtype = dtype, .a_by_rows = a, .b_by_rows = b});
      cases.push_back({.dtype = dtype, .batch = 3, .a_by_rows = a, .b_by_rows = b, .alpha = 0.25});
    }
    cases.push_back({.dtype = dtype, .b_by_rows = false, .bias = true});
    cases.push_back({.dtype = dtype, .residual = true});
    cases.push_back({.dtype = dtype, .bias = true, .residual = true});
  }
  for (const Case& one : cases) {
    Prepare(one);
    const auto executable = Load(0);
    ASSERT_NE(executable, nullptr) << product_.ToJson().dump();
    ASSERT_TRUE(Run(*executable).ok());
    ExpectRight();
  }
}

TEST_F(GpuCublasLt, EveryPlaceIsRight) {
  Prepare({.bias = true});
  auto executable = Load(0);
  ASSERT_NE(executable, nullptr);
  EXPECT_GT(facts_.at("algorithms"), 16);
  EXPECT_LE(facts_.at("ns"), 1.1 * facts_.at("first_ns").get<double>());
  for (int place = 0; place <= LibraryProduct::kMaxPlace; ++place) {
    executable = Load(place);
    ASSERT_NE(executable, nullptr);
    ASSERT_TRUE(Run(*executable).ok());
    ExpectRight();
  }
}

TEST_F(GpuCublasLt, RefusesBinariesForADifferentVersion) {
  Prepare({});
  const Candidate candidate = At(0);
  const CompileResult compiled = target_->Compile(candidate.source, 60'000);
  ASSERT_TRUE(compiled.ok) << compiled.log;
  CublasLtBinary binary = CublasLtBinary::Decode(compiled.binary).value();
  const auto code = [&] {
    return target_->Load(binary.Encode(), candidate, signature_).status().code();
  };
  EXPECT_EQ(code(), StatusCode::kOk);
  binary.version += 1;
  EXPECT_EQ(code(), StatusCode::kNotFound);
  binary.version -= 1;
  for (uint64_t& word : binary.algorithm.data) word = UINT64_MAX;
  EXPECT_EQ(code(), StatusCode::kCorruption);
  EXPECT_FALSE(target_->poisoned());
}

// A launch under capture, before any other of this executable.
TEST_F(GpuCublasLt, IsCaptured) {
  const DynamicLibrary driver = DynamicLibrary::Open({cu::DriverApi::Get().value()->path}).value();
  SymbolLoader load{driver, {}};
  int (*begin)(void*, int) = nullptr;
  int (*end)(void*, void**) = nullptr;
  int (*instantiate)(void**, void*, unsigned long long) = nullptr;
  int (*launch)(void*, void*) = nullptr;
  load.Required(begin, "cuStreamBeginCapture_v2");
  load.Required(end, "cuStreamEndCapture");
  load.Required(instantiate, "cuGraphInstantiateWithFlags");
  load.Required(launch, "cuGraphLaunch");
  ASSERT_EQ(load.missing, "");
  for (const bool bias : {true, false}) {
    Prepare({.m = 384, .n = 640, .k = 2048, .bias = bias});
    const auto executable = Load(0);
    ASSERT_NE(executable, nullptr);
    void* const stream = target_->launch_context().stream;
    scratch_ = target_->Allocate(64 << 20).value();
    std::vector<void*> inputs;
    for (const Tensor& tensor : tensors_) inputs.push_back(tensor.memory.data());
    void* const outputs[] = {output_.data()};
    void* const scratch[] = {scratch_.data()};
    void* graph = nullptr;
    void* ready = nullptr;
    ASSERT_EQ(begin(stream, 0), 0);
    const Status captured = executable->Launch(inputs, outputs, scratch, target_->launch_context());
    ASSERT_EQ(end(stream, &graph), 0);
    ASSERT_TRUE(captured.ok()) << captured.ToString();
    ASSERT_EQ(instantiate(&ready, graph, 0), 0);
    for (int i = 0; i < 3; ++i) ASSERT_EQ(launch(ready, stream), 0);
    ExpectRight();
  }
}

}  // namespace
}  // namespace cudaforge
