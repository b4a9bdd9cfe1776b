#include "kernel/tensor_map.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace cudaforge {
namespace {

using Kind = LaunchArg::Kind;

// in0: 50 rows of 100 floats, each a multiple of 16 bytes. in1: aligned to its elements only.
OpSignature MatrixRegion() {
  OpSignature signature;
  signature.device = DeviceType::kCuda;
  signature.inputs = {{DType::kFloat32, {50, 100}, {100, 1}, 16},
                      {DType::kFloat32, {50, 100}, {100, 1}, 4}};
  Node node;
  node.op = "aten::relu";
  node.args = {{{"in", 0}}};
  node.outputs = {{DType::kBFloat16, {50, 104}, {104, 1}}};
  signature.nodes = {node};
  signature.outputs = {{0, 0}};
  return signature;
}

LaunchArg Of(Kind kind, int index) { return {.kind = kind, .index = index}; }

// A kernel with one map, of in0.
Candidate WithMap(Language language = Language::kCuda) {
  Candidate candidate;
  candidate.source = {language, "code"};
  candidate.plan.scratch_bytes = {4096};
  candidate.plan.tensor_maps = {
      {.of = Of(Kind::kInput, 0),
       .dtype = "float32",
       .sizes = {*IntExpr::Parse("in0.size1"), *IntExpr::Parse("in0.size0")},
       .strides = {*IntExpr::Parse("in0.stride0 * 4")},
       .box = {32, 16},
       .swizzle = 128}};
  Launch launch;
  launch.kernel = "k";
  launch.args = {Of(Kind::kTensorMap, 0), Of(Kind::kOutput, 0)};
  candidate.plan.launches = {launch};
  candidate.author = AgentAuthor("test");
  return candidate;
}

Status Validated(const std::function<void(TensorMap&)>& change) {
  Candidate candidate = WithMap();
  change(candidate.plan.tensor_maps[0]);
  return candidate.Validate(MatrixRegion());
}

void ExpectRefused(const std::string& what, const std::function<void(TensorMap&)>& change) {
  const Status status = Validated(change);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << what;
  EXPECT_NE(status.message().find("tensor_maps[0]: " + what), std::string::npos)
      << status.message();
}

void ExpectValid(const std::function<void(TensorMap&)>& change) {
  const Status status = Validated(change);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(TensorMap, IsEvaluated) {
  const Candidate candidate = WithMap();
  EXPECT_TRUE(candidate.Validate(MatrixRegion()).ok());
  const auto map =
      EvaluateTensorMap(candidate.plan.tensor_maps[0], candidate.plan, MatrixRegion()).value();
  EXPECT_EQ(map.dtype, DType::kFloat32);
  EXPECT_EQ(map.sizes, (std::vector<uint64_t>{100, 50}));
  EXPECT_EQ(map.strides, std::vector<uint64_t>{400});
  EXPECT_EQ(map.box, (std::vector<uint32_t>{32, 16}));
  EXPECT_EQ(map.swizzle, 128);
}

TEST(TensorMap, AnAgentsRoundTrip) {
  for (const Language language : {Language::kCuda, Language::kPtx}) {
    const Json json = WithMap(language).ToJson();
    const Result<Candidate> parsed = Candidate::FromJson(json);
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    EXPECT_EQ(parsed->ToJson(), json);
    EXPECT_TRUE(parsed->Validate(MatrixRegion()).ok());
  }
}

TEST(TensorMap, IsNotForACpu) {
  Candidate candidate = WithMap(Language::kCpu);
  OpSignature signature = MatrixRegion();
  signature.device = DeviceType::kCpu;
  EXPECT_EQ(candidate.Validate(signature).code(), StatusCode::kUnsupported);
}

TEST(TensorMap, AnArgumentNamesOneOfThePlan) {
  Candidate candidate = WithMap();
  candidate.plan.launches[0].args[0].index = 1;
  EXPECT_EQ(candidate.Validate(MatrixRegion()).code(), StatusCode::kInvalidArgument);
}

TEST(TensorMap, HasOneToFiveDimensions) {
  ExpectRefused("sizes", [](TensorMap& m) { m.sizes.clear(); });
  ExpectRefused("sizes", [](TensorMap& m) { m.sizes = {1, 1, 1, 1, 1, 1}; });
  ExpectRefused("strides", [](TensorMap& m) { m.strides.clear(); });
  ExpectRefused("strides", [](TensorMap& m) { m.strides = {400, 400}; });
  ExpectRefused("box", [](TensorMap& m) { m.box = {32}; });
  ExpectValid([](TensorMap& m) { m.sizes = {5000}, m.strides = {}, m.box = {32}; });
  ExpectValid([](TensorMap& m) {
    m.sizes = {4, 25, 5, 5, 2};
    m.strides = {16, 400, 2000, 10000};
    m.box = {4, 1, 1, 1, 1};
  });
}

TEST(TensorMap, HasATypeThatTheCopyEngineKnows) {
  for (const char* dtype : {"bool", "float8", ""}) {
    ExpectRefused("dtype", [&](TensorMap& m) { m.dtype = dtype; });
  }
  // Another type than the buffer's, with elements of four bytes or fewer.
  for (const char* dtype : {"float32", "int32", "float16", "bfloat16"}) {
    ExpectValid([&](TensorMap& m) { m.dtype = dtype; });
  }
  for (const char* dtype : {"float64", "int64"}) {
    ExpectRefused("box", [&](TensorMap& m) { m.dtype = dtype; });
    ExpectValid([&](TensorMap& m) { m.dtype = dtype, m.sizes[0] = 50, m.box[0] = 16; });
  }
}

TEST(TensorMap, NumbersAreInRange) {
  for (const int64_t size : {int64_t{0}, int64_t{-1}, int64_t{1} << 32}) {
    ExpectRefused("sizes:", [&](TensorMap& m) { m.sizes[1] = size; });
  }
  for (const int64_t stride : {int64_t{0}, int64_t{-16}, int64_t{408}, int64_t{1} << 40}) {
    ExpectRefused("strides:", [&](TensorMap& m) { m.strides[0] = stride; });
  }
  for (const int64_t size : {0, 257}) {
    ExpectRefused("box:", [&](TensorMap& m) { m.box[1] = size; });
  }
  ExpectValid([](TensorMap& m) { m.box[1] = 256; });
  EXPECT_FALSE(Validated([](TensorMap& m) { m.sizes[0] = *IntExpr::Parse("1 / 0"); }).ok());
}

TEST(TensorMap, ARowOfTheBoxFitsTheSwizzle) {
  ExpectRefused("box:", [](TensorMap& m) { m.box[0] = 30; });
  for (const int64_t swizzle : {32, 64, 128}) {
    ExpectValid([&](TensorMap& m) { m.swizzle = swizzle, m.box[0] = swizzle / 4; });
    ExpectRefused("box:", [&](TensorMap& m) { m.swizzle = swizzle, m.box[0] = swizzle / 4 + 4; });
  }
  ExpectValid([](TensorMap& m) { m.swizzle = 0, m.box[0] = 256; });
  for (const int64_t swizzle : {-32, 16, 96, 256}) {
    ExpectRefused("swizzle:", [&](TensorMap& m) { m.swizzle = swizzle; });
  }
}

TEST(TensorMap, StaysInsideOfItsBuffer) {
  ExpectRefused("sizes and strides", [](TensorMap& m) { m.sizes[0] = 101; });
  ExpectRefused("sizes and strides", [](TensorMap& m) { m.sizes[1] = 51; });
  ExpectRefused("sizes and strides", [](TensorMap& m) { m.strides[0] = 416; });
  ExpectValid([](TensorMap& m) { m.sizes[1] = 48, m.strides[0] = 416; });
  // The sum would overflow.
  ExpectRefused("sizes and strides", [](TensorMap& m) {
    const int64_t size = (int64_t{1} << 32) - 1;
    const int64_t stride = (int64_t{1} << 40) - 16;
    m.sizes = {size, size, size, size, size};
    m.strides = {stride, stride, stride, stride};
    m.box = {32, 1, 1, 1, 1};
  });
  // The output has 50 rows of 208 bytes.
  const auto output = [](TensorMap& m, int64_t rows) {
    m.of = Of(Kind::kOutput, 0);
    m.dtype = "bfloat16";
    m.sizes = {104, rows};
    m.strides = {208};
  };
  ExpectValid([&](TensorMap& m) { output(m, 50); });
  ExpectRefused("sizes and strides", [&](TensorMap& m) { output(m, 51); });
  // The scratch has 4096 bytes.
  const auto scratch = [](TensorMap& m, int64_t rows) {
    m.of = Of(Kind::kScratch, 0);
    m.sizes = {32, rows};
    m.strides = {128};
  };
  ExpectValid([&](TensorMap& m) { scratch(m, 32); });
  ExpectRefused("sizes and strides", [&](TensorMap& m) { scratch(m, 33); });
}

TEST(TensorMap, IsOfABufferOfThePlan) {
  for (const Kind kind : {Kind::kInput, Kind::kOutput, Kind::kScratch, Kind::kPrepared}) {
    ExpectRefused("of:", [&](TensorMap& m) { m.of = Of(kind, 2); });
    ExpectRefused("of:", [&](TensorMap& m) { m.of = Of(kind, -1); });
  }
  for (const Kind kind : {Kind::kTensorMap, Kind::kInt, Kind::kFloat, Kind::kSymbol}) {
    ExpectRefused("of:", [&](TensorMap& m) { m.of = Of(kind, 0); });
  }
  EXPECT_EQ(Validated([](TensorMap& m) { m.of = Of(Kind::kInOut, 0); }).code(),
            StatusCode::kUnsupported);
}

TEST(TensorMap, AnInputIsAlignedByItsRegion) {
  ExpectRefused("of: the region aligns input 1", [](TensorMap& m) { m.of.index = 1; });
  // A constraint does not replace it.
  Candidate candidate = WithMap();
  candidate.plan.tensor_maps[0].of.index = 1;
  candidate.constraints = {{Constraint::Kind::kAligned, 1, 16}};
  EXPECT_EQ(candidate.Validate(MatrixRegion()).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cudaforge
