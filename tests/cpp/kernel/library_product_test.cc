#include "kernel/library_product.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "kernel/candidate.h"

namespace cudaforge {
namespace {

// Buffers for every operand.
OpSignature FourInputs() {
  OpSignature signature;
  signature.device = DeviceType::kCuda;
  const auto spec = [](std::vector<int64_t> sizes, std::vector<int64_t> strides) {
    return TensorSpec{DType::kBFloat16, std::move(sizes), std::move(strides), 16};
  };
  signature.inputs = {spec({64, 32}, {32, 1}), spec({32, 48}, {1, 32}), spec({64, 48}, {48, 1}),
                      spec({48}, {1})};
  Node node;
  node.op = "aten::mm";
  node.args = {{{"in", 0}}, {{"in", 1}}};
  node.outputs = {spec({64, 48}, {48, 1})};
  signature.nodes = {node};
  signature.outputs = {{0, 0}};
  return signature;
}

LibraryProduct AllOperands() {
  LibraryProduct product;
  product.dtype = DType::kBFloat16;
  product.m = 64, product.n = 48, product.k = 32;
  product.alpha = 0.5, product.beta = 1;
  product.a = {.index = 0, .row = 32, .column = 1, .batch = 0, .alignment = 16};
  product.b = {.index = 1, .row = 1, .column = 32, .batch = 0, .alignment = 16};
  product.c = LibraryMatrix{.index = 2, .row = 48, .column = 1, .batch = 0, .alignment = 16};
  product.d = {.index = 0, .row = 48, .column = 1, .batch = 0, .alignment = 16};
  product.bias = 3;
  product.workspace_bytes = 1 << 20;
  product.place = 2;
  return product;
}

TEST(LibraryProduct, RoundTrip) {
  const Json json = AllOperands().ToJson();
  const Result<LibraryProduct> parsed = LibraryProduct::Parse(CanonicalJson(json));
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->ToJson(), json);
  EXPECT_TRUE(parsed->Validate(FourInputs()).ok()) << parsed->Validate(FourInputs()).ToString();
  EXPECT_EQ(parsed->b.lead(), 32);
}

TEST(LibraryProduct, RefusesHostileJson) {
  const auto refused = [](const std::function<void(Json&)>& change) {
    Json json = AllOperands().ToJson();
    change(json);
    EXPECT_EQ(LibraryProduct::Parse(CanonicalJson(json)).status().code(),
              StatusCode::kInvalidArgument)
        << json.dump();
  };
  refused([](Json& j) { j = nullptr; });
  refused([](Json& j) { j["dtype"] = "int32"; });
  refused([](Json& j) { j["dtype"] = "float64"; });
  refused([](Json& j) { j["tf32"] = true; });
  refused([](Json& j) { j["m"] = 0; });
  refused([](Json& j) { j["k"] = int64_t{1} << 31; });
  refused([](Json& j) { j["batch"] = (1 << 20) + 1; });
  refused([](Json& j) { j["alpha"] = "1"; });
  refused([](Json& j) { j["beta"] = 0; });
  refused([](Json& j) { j.erase("c"); });
  refused([](Json& j) { j["a"]["row"] = -1; });
  refused([](Json& j) { j["a"]["batch"] = (int64_t{1} << 40) + 1; });
  refused([](Json& j) { j["a"]["alignment"] = 3; });
  refused([](Json& j) { j["d"] = {{"in", 0}}; });
  refused([](Json& j) { j["workspace_bytes"] = int64_t{1} << 30; });
  refused([](Json& j) { j["place"] = 16; });
}

TEST(LibraryProduct, StaysInsideOfItsBuffers) {
  const auto refused = [](const std::function<void(LibraryProduct&)>& change) {
    LibraryProduct product = AllOperands();
    change(product);
    EXPECT_EQ(product.Validate(FourInputs()).code(), StatusCode::kInvalidArgument)
        << product.ToJson().dump();
  };
  refused([](LibraryProduct& p) { p.m = 65; });
  refused([](LibraryProduct& p) { p.n = 49; });
  refused([](LibraryProduct& p) { p.k = 33; });
  refused([](LibraryProduct& p) { p.a.index = 4; });
  refused([](LibraryProduct& p) { p.a.row = 33; });
  refused([](LibraryProduct& p) { p.a.row = 31; });
  refused([](LibraryProduct& p) { p.a.column = 2; });
  refused([](LibraryProduct& p) { p.b.row = 2; });
  refused([](LibraryProduct& p) { p.batch = 2; });
  refused([](LibraryProduct& p) { p.d.index = 1; });
  refused([](LibraryProduct& p) { p.d = {.index = 0, .row = 1, .column = 64, .alignment = 16}; });
  refused([](LibraryProduct& p) { p.bias = 0, p.bias = 9; });
  refused([](LibraryProduct& p) { p.dtype = DType::kFloat16; });
  OpSignature unaligned = FourInputs();
  unaligned.inputs[2].alignment = 8;
  EXPECT_FALSE(AllOperands().Validate(unaligned).ok());
  OpSignature cpu = FourInputs();
  cpu.device = DeviceType::kCpu;
  EXPECT_FALSE(AllOperands().Validate(cpu).ok());
}

TEST(LibraryProduct, ABatchMayShareAnInputButNotAnOutput) {
  OpSignature signature = FourInputs();
  signature.inputs[1].sizes = {3, 32, 48}, signature.inputs[1].strides = {32 * 48, 1, 32};
  signature.nodes[0].outputs[0].sizes = {3, 64, 48};
  signature.nodes[0].outputs[0].strides = {64 * 48, 48, 1};
  LibraryProduct product = AllOperands();
  product.batch = 3;
  product.b.batch = 32 * 48;
  EXPECT_FALSE(product.Validate(signature).ok());
  product.d.batch = 64 * 48;
  EXPECT_TRUE(product.Validate(signature).ok()) << product.Validate(signature).ToString();
}

TEST(LibraryProduct, IsACandidateOfBuiltInAuthors) {
  Candidate candidate;
  candidate.source = {Language::kLibrary, CanonicalJson(AllOperands().ToJson())};
  candidate.author = "generator:library";
  const Result<Candidate> parsed = Candidate::FromJson(candidate.ToJson());
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_TRUE(parsed->Validate(FourInputs()).ok());
  candidate.plan.scratch_bytes = {64};
  EXPECT_FALSE(candidate.Validate(FourInputs()).ok());
  candidate.plan.scratch_bytes.clear();
  candidate.source.code = "{}";
  EXPECT_FALSE(candidate.Validate(FourInputs()).ok());
  candidate.author = AgentAuthor("x");
  EXPECT_FALSE(Candidate::FromJson(candidate.ToJson()).ok());
}

}  // namespace
}  // namespace cudaforge
