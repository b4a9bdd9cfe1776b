#include "signature/op_signature.h"

#include <gtest/gtest.h>

#include <functional>

namespace cudaforge {
namespace {

OpSignature Softmax() {
  OpSignature signature;
  signature.inputs = {{DType::kFloat32, {8, 128}, {128, 1}, 16}};
  Node node;
  node.op = "aten::_softmax";
  node.args = {{{"in", 0}}, -1, false};
  node.outputs = {{DType::kFloat32, {8, 128}, {128, 1}}};
  signature.nodes = {node};
  signature.outputs = {{0, 0}};
  signature.numerics = {{"deterministic", false}, {"float32_matmul_precision", "highest"}};
  return signature;
}

// The text and the key are part of the persistent format: they may change only with
// OpSignature::kFormat.
TEST(OpSignatureTest, CanonicalTextAndKeyAreFixed) {
  EXPECT_EQ(
      Softmax().Canonical(),
      R"({"aliases":[],"device":"cpu","format":1,"inputs":[{"alignment":16,"dtype":"float32",)"
      R"("sizes":[8,128],"strides":[128,1]}],"nodes":[{"args":[{"in":0},-1,false],"kwargs":{},)"
      R"("op":"aten::_softmax","outputs":[{"dtype":"float32","sizes":[8,128],)"
      R"("strides":[128,1]}]}],"numerics":{"deterministic":false,)"
      R"("float32_matmul_precision":"highest"},"outputs":[{"node":0,"out":0}]})");
  EXPECT_EQ(Softmax().Key(), "883eda5fd990be137db8ef9c647aff4dbd26a579f7f7351d938e86c6adf85e59");
}

TEST(OpSignatureTest, RoundTrip) {
  const Result<OpSignature> parsed = OpSignature::Parse(Softmax().Canonical());
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->Canonical(), Softmax().Canonical());
  EXPECT_EQ(parsed->Describe(), "_softmax(float32[8, 128])");
}

TEST(OpSignatureTest, FrozenInputs) {
  OpSignature frozen = Softmax();
  frozen.inputs[0].frozen = true;
  const Result<OpSignature> parsed = OpSignature::Parse(frozen.Canonical());
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->inputs, frozen.inputs);
  Json json = frozen.ToJson();
  json["inputs"][0]["frozen"] = false;  // one text for each meaning
  EXPECT_FALSE(OpSignature::FromJson(json).ok());
  json = Softmax().ToJson();
  json["nodes"][0]["outputs"][0]["frozen"] = true;
  EXPECT_FALSE(OpSignature::FromJson(json).ok());
}

TEST(OpSignatureTest, EveryDTypeIsFoundByItsName) {
  EXPECT_EQ(DTypeNames().size(), 7u);
  for (std::string_view name : DTypeNames()) {
    const Result<DType> dtype = ParseDType(name);
    ASSERT_TRUE(dtype.ok()) << name;
    EXPECT_EQ(DTypeName(*dtype), name);
  }
}

TEST(OpSignatureTest, EveryFieldChangesTheKey) {
  const std::string key = Softmax().Key();
  const auto differs = [&](auto change) {
    OpSignature signature = Softmax();
    change(signature);
    EXPECT_NE(signature.Key(), key);
  };
  differs([](OpSignature& s) { s.device = DeviceType::kCuda; });
  differs([](OpSignature& s) { s.inputs[0].dtype = DType::kFloat16; });
  differs([](OpSignature& s) { s.inputs[0].frozen = true; });
  differs([](OpSignature& s) { s.inputs[0].sizes[0] = 9; });
  differs([](OpSignature& s) { s.inputs[0].strides[0] = 256; });
  differs([](OpSignature& s) { s.inputs[0].alignment = 8; });
  differs([](OpSignature& s) { s.nodes[0].args[1] = 0; });
  differs([](OpSignature& s) { s.nodes[0].args[2] = true; });
  differs([](OpSignature& s) { s.nodes[0].outputs[0].strides = {1, 8}; });
  differs([](OpSignature& s) { s.numerics["deterministic"] = true; });
}

// Changes the JSON of a valid signature and expects a refusal whose message contains `word`.
void Refused(const std::function<void(Json&)>& change, const std::string& word) {
  Json json = Softmax().ToJson();
  change(json);
  const Result<OpSignature> parsed = OpSignature::FromJson(json);
  ASSERT_FALSE(parsed.ok()) << word;
  EXPECT_NE(parsed.status().message().find(word), std::string::npos) << parsed.status().message();
}

TEST(OpSignatureTest, RefusesInvalidSignatures) {
  Refused([](Json& j) { j["format"] = 2; }, "format");
  Refused([](Json& j) { j["extra"] = 1; }, "extra");
  Refused([](Json& j) { j["device"] = "tpu"; }, "device");
  Refused([](Json& j) { j["inputs"][0]["dtype"] = "complex64"; }, "complex64");
  Refused([](Json& j) { j["inputs"][0]["sizes"] = {8}; }, "sizes and strides");
  Refused([](Json& j) { j["inputs"][0]["sizes"] = {-1, 2}; }, "size");
  Refused([](Json& j) { j["inputs"][0]["strides"] = {-1, 1}; }, "stride");
  Refused([](Json& j) { j["inputs"][0]["sizes"] = {int64_t{1} << 39, 1 << 20}; }, "2^40");
  Refused([](Json& j) { j["inputs"][0]["alignment"] = 12; }, "alignment");
  Refused([](Json& j) { j["inputs"][0]["alignment"] = 2; }, "alignment");
  Refused([](Json& j) { j["nodes"] = Json::array(); }, "nodes");
  Refused([](Json& j) { j["nodes"][0]["op"] = "system(\"rm\")"; }, "operator name");
  Refused([](Json& j) { j["nodes"][0]["args"][0] = {{"in", 1}}; }, "does not exist");
  Refused([](Json& j) { j["nodes"][0]["args"][0] = {{"node", 0}, {"out", 0}}; }, "does not exist");
  Refused([](Json& j) { j["nodes"][0]["args"][0] = {{"code", "x"}}; }, "unknown argument");
  Refused([](Json& j) { j["nodes"][0]["args"][0] = {{{{{{1}}}}}}; }, "nested");
  Refused([](Json& j) { j["outputs"][0]["node"] = 7; }, "does not exist");
  Refused([](Json& j) { j["outputs"] = Json::array(); }, "outputs");
  Refused([](Json& j) { j["aliases"] = {{0, 1}}; }, "aliases");
  Refused([](Json& j) { j["numerics"] = {{"x", {1}}}; }, "numerics");
}

TEST(OpSignatureTest, AbsentOutputsStayAbsentAndUnused) {
  OpSignature signature = Softmax();
  signature.nodes[0].outputs.emplace_back().absent = true;
  EXPECT_NE(signature.Key(), Softmax().Key());
  const Result<OpSignature> parsed = OpSignature::Parse(signature.Canonical());
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->Key(), signature.Key());
  EXPECT_TRUE(parsed->nodes[0].HasOutput(0));
  EXPECT_FALSE(parsed->nodes[0].HasOutput(1));
  Refused([](Json& j) { j["nodes"][0]["outputs"][0] = nullptr; }, "absent");
}

TEST(TensorSpecTest, StorageAndRowMajorStrides) {
  const TensorSpec expanded{DType::kFloat32, {4, 3}, {0, 1}};
  EXPECT_EQ(expanded.StorageBytes(), 12);
  const TensorSpec empty{DType::kFloat32, {0, 3}, {3, 1}};
  EXPECT_EQ(empty.StorageBytes(), 0);
  const TensorSpec scalar{DType::kBool, {}, {}};
  EXPECT_EQ(scalar.StorageBytes(), 1);
  EXPECT_EQ(ContiguousStrides({2, 3, 4}), (std::vector<int64_t>{12, 4, 1}));
}

TEST(OpNameTest, WithoutOverloadAndNamespace) {
  EXPECT_EQ(OpBaseName("aten::_softmax.int"), "aten::_softmax");
  EXPECT_EQ(OpBaseName("aten::mm"), "aten::mm");
  EXPECT_EQ(OpBaseName("mm.out.more"), "mm");
  EXPECT_EQ(OpBaseName(""), "");
  EXPECT_EQ(OpShortName("aten::sum.dim_IntList"), "sum");
  EXPECT_EQ(OpShortName("prims::convert_element_type.default"), "convert_element_type");
  EXPECT_EQ(OpShortName("mm"), "mm");
  EXPECT_EQ(OpShortName("mm.a::b"), "mm");
  EXPECT_EQ(OpShortName("aten::"), "");
}

TEST(RegionIdTest, OtherRegionNamesTheId) {
  EXPECT_EQ(OtherRegion(7).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(OtherRegion(7).message().starts_with("region 7 ")) << OtherRegion(7).message();
}

TEST(RegionIdTest, FirstSixtyThreeBits) {
  EXPECT_EQ(RegionId("ffffffffffffffff" + std::string(48, '0')), INT64_MAX);
  EXPECT_EQ(RegionId("0000000000000002" + std::string(48, 'f')), 1);
  EXPECT_THROW((void)RegionId("short"), CheckError);
}

}  // namespace
}  // namespace cudaforge
