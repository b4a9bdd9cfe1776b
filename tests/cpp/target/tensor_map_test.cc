#include "target/cuda/tensor_map.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "target/cuda/driver_api.h"
#include "target/cuda/nvrtc_compiler.h"
#include "target/target.h"
#include "tests/cpp/target/tensor_map_kernels.h"

namespace cudaforge {
namespace {

using Kind = LaunchArg::Kind;

// What a driver was called with.
struct EncodeCall {
  int type = 0;
  uintptr_t address = 0;
  std::vector<uint64_t> sizes;
  std::vector<uint64_t> strides;
  std::vector<uint32_t> box;
  std::vector<uint32_t> element_strides;
  int swizzle = 0;
  int promotion = 0;
  int fill = 0;
  int interleave = 0;
};
EncodeCall last_call;

cu::Result FakeEncode(cu::TensorMap* map, int type, uint32_t rank, void* address,
                      const uint64_t* sizes, const uint64_t* strides, const uint32_t* box,
                      const uint32_t* element_strides, int interleave, int swizzle, int promotion,
                      int fill) {
  last_call = {type,
               reinterpret_cast<uintptr_t>(address),
               {sizes, sizes + rank},
               {strides, strides + rank - 1},
               {box, box + rank},
               {element_strides, element_strides + rank},
               swizzle,
               promotion,
               fill,
               interleave};
  if (strides == nullptr || reinterpret_cast<uintptr_t>(map) % 64 != 0) return 1;
  *map = {{7}};
  return 0;
}

cu::Result FakeRefusal(cu::TensorMap*, int, uint32_t, void*, const uint64_t*, const uint64_t*,
                       const uint32_t*, const uint32_t*, int, int, int, int) {
  return 1;
}

cu::Result FakeReplace(cu::TensorMap*, void*) { return 0; }

cu::Result FakeErrorText(cu::Result, const char** text) {
  *text = "refused";
  return 0;
}

cu::DriverApi FakeDriver() {
  cu::DriverApi api;
  api.TensorMapEncodeTiled = FakeEncode;
  api.TensorMapReplaceAddress = FakeReplace;
  api.GetErrorName = FakeErrorText;
  api.GetErrorString = FakeErrorText;
  return api;
}

// Numbers of cuda.h.
TEST(TensorMapEncoding, PassesTheNumbers) {
  EvaluatedTensorMap map{DType::kBFloat16, {100, 50, 3}, {208, 10400}, {64, 16, 1}, 128};
  const auto encoded = EncodeTensorMap(FakeDriver(), map);
  ASSERT_TRUE(encoded.ok()) << encoded.status().ToString();
  EXPECT_EQ(encoded->opaque[0], 7u);
  EXPECT_EQ(last_call.type, 9);
  EXPECT_EQ(last_call.sizes, map.sizes);
  EXPECT_EQ(last_call.strides, map.strides);
  EXPECT_EQ(last_call.box, map.box);
  EXPECT_EQ(last_call.element_strides, (std::vector<uint32_t>{1, 1, 1}));
  EXPECT_EQ(last_call.interleave, 0);
  EXPECT_EQ(last_call.swizzle, 3);
  EXPECT_EQ(last_call.promotion, 2);
  EXPECT_EQ(last_call.fill, 0);
  EXPECT_NE(last_call.address, 0u);
  EXPECT_EQ(last_call.address % 256, 0u);
  constexpr std::pair<DType, int> kTypes[] = {{DType::kInt32, 3},   {DType::kInt64, 5},
                                              {DType::kFloat16, 6}, {DType::kFloat32, 7},
                                              {DType::kFloat64, 8}, {DType::kBFloat16, 9}};
  for (const auto& [dtype, number] : kTypes) {
    ASSERT_TRUE(EncodeTensorMap(FakeDriver(), {dtype, {100}, {}, {16}, 0}).ok());
    EXPECT_EQ(last_call.type, number);
  }
  constexpr std::pair<int64_t, int> kSwizzles[] = {{0, 0}, {32, 1}, {64, 2}, {128, 3}};
  for (const auto& [bytes, number] : kSwizzles) {
    ASSERT_TRUE(EncodeTensorMap(FakeDriver(), {DType::kFloat32, {100}, {}, {4}, bytes}).ok());
    EXPECT_EQ(last_call.swizzle, number);
  }
}

TEST(TensorMapEncoding, ReportsADriverWithoutMapsAndARefusal) {
  const EvaluatedTensorMap map{DType::kFloat32, {100}, {}, {16}, 0};
  for (const bool encodes : {false, true}) {
    cu::DriverApi old = FakeDriver();
    if (encodes) {
      old.TensorMapReplaceAddress = nullptr;
    } else {
      old.TensorMapEncodeTiled = nullptr;
    }
    EXPECT_EQ(EncodeTensorMap(old, map).status().code(), StatusCode::kUnavailable);
  }
  cu::DriverApi refusing = FakeDriver();
  refusing.TensorMapEncodeTiled = FakeRefusal;
  const Status status = EncodeTensorMap(refusing, map).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("cuTensorMapEncodeTiled"), std::string::npos);
}

TEST(TensorMapKernels, CompileAndPassTheChecks) {
  const Result<NvrtcCompiler> nvrtc = NvrtcCompiler::Create();
  if (!nvrtc.ok()) GTEST_SKIP() << "needs NVRTC: set CUDAFORGE_CUDA_PATH";
  for (const char* arch : {"sm_90a", "sm_100a", "sm_120"}) {
    const CompileResult result = nvrtc->Compile(kTensorMapKernels, arch);
    ASSERT_TRUE(result.ok) << arch << ": " << result.log;
    for (const char* kernel : {"pad", "pad_batch", "copy"}) {
      EXPECT_EQ(result.resources.at(kernel).at("spill_bytes"), 0) << kernel << " " << arch;
    }
  }
}

constexpr int64_t kMapRows = 50;
constexpr int64_t kMapColumns = 100;
constexpr int64_t kMapBytes = kMapRows * kMapColumns * 4;
constexpr int64_t kOutRows = 96;
constexpr int64_t kOutColumns = 128;
constexpr int64_t kOutBytes = kOutRows * kOutColumns * 4;

OpSignature MapSignature() {
  OpSignature signature;
  signature.device = DeviceType::kCuda;
  signature.inputs = {{DType::kFloat32, {kMapRows, kMapColumns}, {kMapColumns, 1}, 16}};
  Node node;
  node.op = "aten::relu";
  node.args = Json::array({Json{{"in", 0}}});
  node.outputs = {{DType::kFloat32, {kOutRows, kOutColumns}, {kOutColumns, 1}}};
  signature.nodes = {node};
  signature.outputs = {{0, 0}};
  return signature;
}

LaunchArg Arg(Kind kind, int index) { return {.kind = kind, .index = index}; }

TensorMap Matrix(const LaunchArg& of, int64_t swizzle) {
  return {.of = of,
          .dtype = "float32",
          .sizes = {*IntExpr::Parse("in0.size1"), *IntExpr::Parse("in0.size0")},
          .strides = {*IntExpr::Parse("in0.stride0 * 4")},
          .box = {32, 16},
          .swizzle = swizzle};
}

Candidate MapLaunch(const std::string& kernel, const std::vector<TensorMap>& maps,
                    const std::vector<LaunchArg>& args, const std::vector<int64_t>& grid) {
  Candidate candidate;
  candidate.source = {Language::kCuda, kTensorMapKernels};
  candidate.plan.tensor_maps = maps;
  Launch launch;
  launch.kernel = kernel;
  launch.args = args;
  for (size_t d = 0; d < grid.size(); ++d) launch.grid[d] = grid[d];
  launch.block[0] = 128;
  candidate.plan.launches = {launch};
  return candidate;
}

Candidate Pad(int64_t swizzle) {
  return MapLaunch("pad", {Matrix(Arg(Kind::kInput, 0), swizzle)},
                   {Arg(Kind::kTensorMap, 0),
                    Arg(Kind::kOutput, 0),
                    {.kind = Kind::kInt, .expr = swizzle == 0 ? 0 : 1}},
                   {4, 4});
}

class GpuTensorMap : public testing::Test {
 protected:
  void SetUp() override {
    if (!cu::DriverApi::Get().ok()) GTEST_SKIP() << "needs a GPU";
    Result<std::unique_ptr<Target>> target = MakeCudaTarget(0);
    ASSERT_TRUE(target.ok()) << target.status().ToString();
    target_ = *std::move(target);
    if (!HasMaps()) return;
    CompileResult compiled = target_->Compile({Language::kCuda, kTensorMapKernels}, 60'000);
    ASSERT_TRUE(compiled.ok) << compiled.log;
    binary_ = std::move(compiled.binary);
    out_ = target_->Allocate(kOutBytes).value();
  }

  // sm_90 and later have tensor maps, and clusters.
  bool HasMaps() const { return target_->arch().cluster_launch.value_or(0) != 0; }

  // A matrix of consecutive numbers from `first`, without zero.
  DeviceBuffer Input(float first) {
    std::vector<float> values(kMapRows * kMapColumns);
    for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i);
    DeviceBuffer buffer = target_->Allocate(kMapBytes).value();
    EXPECT_TRUE(target_->CopyIn(buffer.data(), values.data(), kMapBytes).ok());
    return buffer;
  }

  Result<std::unique_ptr<Executable>> Load(const Candidate& candidate) {
    CF_RETURN_IF_ERROR(candidate.Validate(MapSignature()));
    return target_->Load(binary_, candidate, MapSignature());
  }

  // The output, which held -1 everywhere before the launch.
  std::vector<float> Run(const Executable& executable, const DeviceBuffer& input,
                         const DeviceBuffer* scratch = nullptr) {
    std::vector<float> values(kOutRows * kOutColumns, -1.0f);
    EXPECT_TRUE(target_->CopyIn(out_.data(), values.data(), kOutBytes).ok());
    void* const inputs[] = {input.data()};
    void* const outputs[] = {out_.data()};
    std::vector<void*> buffers;
    if (scratch != nullptr) buffers.push_back(scratch->data());
    const Status launched = executable.Launch(inputs, outputs, buffers, target_->launch_context());
    EXPECT_TRUE(launched.ok()) << launched.ToString();
    const Status done = target_->Synchronize();
    EXPECT_TRUE(done.ok()) << done.ToString();
    EXPECT_TRUE(target_->CopyOut(values.data(), out_.data(), kOutBytes).ok());
    return values;
  }

  std::unique_ptr<Target> target_;
  std::string binary_;
  DeviceBuffer out_;
};

// The result of `pad`.
std::vector<float> Padded(float first) {
  std::vector<float> values(kOutRows * kOutColumns, -1.0f);
  for (int64_t r = 0; r < 64; ++r) {
    for (int64_t c = 0; c < 128; ++c) {
      const int64_t row = r - 3;
      const int64_t column = c - 8;
      const bool inside = row >= 0 && row < kMapRows && column >= 0 && column < kMapColumns;
      values[static_cast<size_t>(r * 128 + c)] =
          inside ? first + static_cast<float>(row * kMapColumns + column) : 0.0f;
    }
  }
  return values;
}

TEST_F(GpuTensorMap, ReadsTilesWithZerosOutside) {
  if (!HasMaps()) return;
  const DeviceBuffer input = Input(1);
  for (const int64_t swizzle : {0, 128}) {
    const auto executable = Load(Pad(swizzle));
    ASSERT_TRUE(executable.ok()) << executable.status().ToString();
    EXPECT_EQ(Run(**executable, input), Padded(1)) << "swizzle " << swizzle;
  }
  EXPECT_FALSE(target_->poisoned());
}

TEST_F(GpuTensorMap, EachLaunchHasItsOwnAddress) {
  if (!HasMaps()) return;
  const DeviceBuffer first = Input(1);
  const DeviceBuffer second = Input(9001);
  const auto executable = Load(Pad(128));
  ASSERT_TRUE(executable.ok()) << executable.status().ToString();
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(Run(**executable, first), Padded(1));
    EXPECT_EQ(Run(**executable, second), Padded(9001));
  }
}

// 5 matrices of 10 rows. Rows behind the last one of a matrix are zeros, not the next matrix.
TEST_F(GpuTensorMap, ReadsABatch) {
  if (!HasMaps()) return;
  TensorMap map = Matrix(Arg(Kind::kInput, 0), 0);
  map.sizes = {100, 10, 5};
  map.strides = {400, 4000};
  map.box = {32, 4, 2};
  const auto executable = Load(
      MapLaunch("pad_batch", {map}, {Arg(Kind::kTensorMap, 0), Arg(Kind::kOutput, 0)}, {4, 3, 3}));
  ASSERT_TRUE(executable.ok()) << executable.status().ToString();
  const std::vector<float> result = Run(**executable, Input(1));
  for (int64_t b = 0; b < 6; ++b) {
    for (int64_t r = 0; r < 12; ++r) {
      for (int64_t c = 0; c < 128; ++c) {
        const bool inside = b < 5 && r < 10 && c < 100;
        const float expected = inside ? static_cast<float>(1 + b * 1000 + r * 100 + c) : 0.0f;
        ASSERT_EQ(result[static_cast<size_t>((b * 12 + r) * 128 + c)], expected)
            << b << ", " << r << ", " << c;
      }
    }
  }
}

// Through scratch: both launches have maps, of three buffers. Elements outside are not written.
TEST_F(GpuTensorMap, WritesTilesInside) {
  if (!HasMaps()) return;
  Candidate candidate =
      MapLaunch("copy",
                {Matrix(Arg(Kind::kInput, 0), 128), Matrix(Arg(Kind::kScratch, 0), 128),
                 Matrix(Arg(Kind::kOutput, 0), 128)},
                {Arg(Kind::kTensorMap, 0), Arg(Kind::kTensorMap, 1)}, {4, 4});
  candidate.plan.scratch_bytes = {kMapBytes};
  candidate.plan.launches.push_back(candidate.plan.launches[0]);
  candidate.plan.launches[1].args = {Arg(Kind::kTensorMap, 1), Arg(Kind::kTensorMap, 2)};
  candidate.plan.tensor_maps[2].strides = {kOutColumns * 4};
  const auto executable = Load(candidate);
  ASSERT_TRUE(executable.ok()) << executable.status().ToString();
  const DeviceBuffer scratch = target_->Allocate(kMapBytes).value();
  const std::vector<float> result = Run(**executable, Input(1), &scratch);
  for (int64_t r = 0; r < kOutRows; ++r) {
    for (int64_t c = 0; c < kOutColumns; ++c) {
      const bool inside = r < kMapRows && c < kMapColumns;
      const float expected = inside ? static_cast<float>(1 + r * kMapColumns + c) : -1.0f;
      ASSERT_EQ(result[static_cast<size_t>(r * kOutColumns + c)], expected) << r << ", " << c;
    }
  }
}

TEST_F(GpuTensorMap, ParametersMustMatch) {
  if (!HasMaps()) return;
  Candidate pointer = Pad(0);
  pointer.plan.launches[0].args[0] = Arg(Kind::kInput, 0);
  Candidate map = Pad(0);
  map.plan.launches[0].args[1] = Arg(Kind::kTensorMap, 0);
  Candidate fewer = Pad(0);
  fewer.plan.launches[0].args.pop_back();
  for (const Candidate& candidate : {pointer, map, fewer}) {
    const Status status = Load(candidate).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
    EXPECT_NE(status.message().find("'pad'"), std::string::npos) << status.message();
  }
}

}  // namespace
}  // namespace cudaforge
