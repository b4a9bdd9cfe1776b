#include <gtest/gtest.h>

#include "generators/library/product.h"
#include "generators/library/search.h"
#include "tests/cpp/generators/region.h"

namespace cudaforge {
namespace {

using library::ReadLibraryProduct;
using rows::Out;
using rows::Region;
using rows::Spec;

constexpr DType kHalf = DType::kFloat16;
constexpr DType kBrain = DType::kBFloat16;

OpSignature OnDevice(OpSignature signature) {
  signature.device = DeviceType::kCuda;
  return signature;
}

// The linear layer of 512 rows, 256 inputs and 384 outputs, with what follows it.
struct Linear {
  explicit Linear(DType type, TensorSpec added = {}) : dtype(type), out(Spec({512, 384}, type)) {
    if (added.sizes.empty()) added = Spec({384}, type);
    const Json bias = region.Input(std::move(added));
    const Json a = region.Input(Spec({512, 256}, type));
    const Json b = region.Input(Spec({256, 384}, type, {1, 256}));
    last = region.Call("addmm", {bias, a, b}, {out});
  }
  Linear& Then(const std::string& op, Json kwargs = Json::object()) {
    last = region.Call(op, {Out(last)}, {out});
    arguments.emplace_back(last, std::move(kwargs));
    return *this;
  }
  Linear& Add(TensorSpec spec, Json kwargs = Json::object()) {
    const Json other = region.Input(std::move(spec));
    last = region.Call("add.Tensor", {Out(last), other}, {out});
    arguments.emplace_back(last, std::move(kwargs));
    return *this;
  }
  OpSignature Signature() const {
    OpSignature signature = OnDevice(region.Signature());
    for (const auto& [node, kwargs] : arguments)
      signature.nodes[static_cast<size_t>(node)].kwargs = kwargs;
    signature.numerics = {{"deterministic", false}};
    EXPECT_TRUE(OpSignature::FromJson(signature.ToJson()).ok());
    return signature;
  }
  Result<LibraryProduct> Read() const { return ReadLibraryProduct(Signature()); }

  DType dtype;
  TensorSpec out;
  Region region;
  int last = 0;
  std::vector<std::pair<int, Json>> arguments;
};

const Json kTanh = {{"approximate", {{"str", "tanh"}}}};

OpSignature Batched(TensorSpec a, TensorSpec b) {
  const TensorSpec out = Spec({a.sizes[0], a.sizes[1], b.sizes[2]}, a.dtype);
  Region region;
  const Json left = region.Input(std::move(a)), right = region.Input(std::move(b));
  region.Call("bmm", {left, right}, {out});
  return OnDevice(region.Signature());
}

OpSignature Plain(TensorSpec a, TensorSpec b) {
  const TensorSpec out = Spec({a.sizes[0], b.sizes[1]}, a.dtype);
  Region region;
  const Json left = region.Input(std::move(a)), right = region.Input(std::move(b));
  region.Call("mm", {left, right}, {out});
  return OnDevice(region.Signature());
}

TEST(LibraryGenerator, ReadsALinearLayer) {
  const Result<LibraryProduct> product = Linear(kBrain).Read();
  ASSERT_TRUE(product.ok()) << product.status().ToString();
  const Json expected = Json::parse(R"({
      "a": {"in": 1, "row": 256, "column": 1, "batch": 0, "alignment": 16},
      "b": {"in": 2, "row": 1, "column": 256, "batch": 0, "alignment": 16},
      "d": {"out": 0, "row": 384, "column": 1, "batch": 0, "alignment": 16},
      "bias": {"in": 0}, "alpha": 1.0, "beta": 0.0, "batch": 1, "m": 512, "n": 384, "k": 256,
      "dtype": "bfloat16", "tf32": false, "place": 0,
      "workspace_bytes": 33554432})");
  EXPECT_EQ(product->ToJson(), expected);
}

TEST(LibraryGenerator, ReadsAResidual) {
  const TensorSpec residual = Spec({512, 384}, kBrain);
  const auto both = Linear(kBrain).Add(residual, {{"alpha", 0.5}}).Read();
  ASSERT_TRUE(both.ok()) << both.status().ToString();
  EXPECT_EQ(both->bias, 0);
  ASSERT_TRUE(both->c.has_value());
  EXPECT_EQ(both->c->index, 3);
  EXPECT_EQ(both->beta, 0.5);
  const auto as_argument = Linear(kBrain, residual).Add(Spec({384}, kBrain)).Read();
  ASSERT_TRUE(as_argument.ok()) << as_argument.status().ToString();
  EXPECT_EQ(as_argument->c->index, 0);
  EXPECT_EQ(as_argument->bias, 3);
}

TEST(LibraryGenerator, ReadsTheFactorsOfAddmm) {
  Linear layer(kBrain, Spec({512, 384}, kBrain));
  layer.arguments.emplace_back(0, Json{{"alpha", 2}, {"beta", 3}});
  const auto product = layer.Read();
  ASSERT_TRUE(product.ok()) << product.status().ToString();
  EXPECT_EQ(product->alpha, 2);
  EXPECT_EQ(product->beta, 3);
  layer.arguments.back().second = {{"beta", 0}};
  EXPECT_FALSE(layer.Read()->c.has_value()) << "ATen does not read it";
  Linear row(kBrain);
  row.arguments.emplace_back(0, Json{{"beta", 2}});
  EXPECT_EQ(row.Read().status().code(), StatusCode::kUnsupported);
}

TEST(LibraryGenerator, ReadsBatches) {
  const auto product =
      ReadLibraryProduct(Batched(Spec({8, 128, 64}, kHalf), Spec({8, 64, 96}, kHalf, {0, 1, 64})));
  ASSERT_TRUE(product.ok()) << product.status().ToString();
  EXPECT_EQ(product->batch, 8);
  EXPECT_EQ(product->a.batch, 128 * 64);
  EXPECT_EQ(product->b.batch, 0);
  EXPECT_EQ(product->b.column, 64);
  EXPECT_EQ(product->d.batch, 128 * 96);
}

TEST(LibraryGenerator, RoundsFloat32AsAtenMay) {
  OpSignature signature = Plain(Spec({512, 256}), Spec({256, 384}));
  const auto tf32 = [&](const Json& numerics) {
    signature.numerics = numerics;
    return ReadLibraryProduct(signature)->tf32;
  };
  EXPECT_FALSE(tf32({{"float32_matmul_precision", "highest"}}));
  EXPECT_TRUE(tf32({{"float32_matmul_precision", "high"}}));
  EXPECT_TRUE(tf32({{"float32_matmul_precision", "medium"}}));
  EXPECT_FALSE(tf32({{"float32_matmul_precision", "medium"}, {"cublas_ieee", true}}));
}

// ATen rounds after each operation: 65504 is the largest finite float16.
TEST(LibraryGenerator, Float16OverflowsWhereAtenDoes) {
  EXPECT_TRUE(Linear(kHalf, Spec({512, 384}, kHalf)).Read().ok());
  for (const Linear& layer :
       {Linear(kHalf).Add(Spec({384}, kHalf)), Linear(kHalf).Add(Spec({512, 384}, kHalf))}) {
    EXPECT_EQ(layer.Read().status().code(), StatusCode::kUnsupported);
  }
}

TEST(LibraryGenerator, RefusesWhatTheLibraryDoesNotCompute) {
  const TensorSpec residual = Spec({512, 384}, kBrain);
  for (const Linear& layer :
       {Linear(kBrain).Then("gelu"), Linear(kBrain).Then("silu"), Linear(kBrain).Then("relu"),
        Linear(kBrain).Add(residual).Add(residual), Linear(kBrain).Add(Spec({512, 1}, kBrain)),
        Linear(kBrain, Spec({512, 1}, kBrain)), Linear(kBrain).Add(Spec({512, 384})),
        Linear(kBrain).Then("gelu", kTanh)}) {
    EXPECT_EQ(layer.Read().status().code(), StatusCode::kUnsupported)
        << layer.Signature().Describe();
  }
  Linear two(kBrain);
  two.Then("relu").region.Output(0);
  two.region.Output(1);
  EXPECT_EQ(two.Read().status().code(), StatusCode::kUnsupported) << "the sum is a result, too";
  Region none;
  none.Call("relu", {none.Input(residual)}, {residual});
  EXPECT_EQ(ReadLibraryProduct(OnDevice(none.Signature())).status().code(), StatusCode::kNotFound);
}

TEST(LibraryGenerator, TriesThreeAndOneMoreForEachThatIsWrong) {
  DeviceArch arch;
  arch.target = "cuda:sm_90a";
  const OpSignature signature = Linear(kBrain).Signature();
  auto search = library::MakeLibrarySearch(signature, arch);
  ASSERT_TRUE(search.ok()) << search.status().ToString();
  std::vector<int> places;
  while (const std::optional<Candidate> candidate = (*search)->Next()) {
    EXPECT_TRUE(candidate->Validate(signature).ok());
    EXPECT_EQ(candidate->author, "generator:library");
    EXPECT_EQ(candidate->source.language, Language::kLibrary);
    places.push_back(candidate->params["place"]);
    (*search)->Tell(places.size() - 1, {.correct = places.size() != 2, .ns = 1000});
  }
  EXPECT_EQ(places, (std::vector<int>{0, 1, 2, 3}));
}

TEST(LibraryGenerator, CompetesWithOtherGenerators) {
  const OpSignature half = Linear(kBrain).Signature();
  EXPECT_TRUE(CanGenerate(half, "cuda:sm_90a").ok());
  EXPECT_TRUE(CanGenerate(half, "cuda:sm_80").ok());
  EXPECT_FALSE(CanGenerate(half, "cpu:x86-64-v4").ok());
  const auto generators = [](const OpSignature& signature) {
    std::vector<std::string_view> names;
    for (const Generator& generator : Generators()) {
      if (generator.can_make(signature, "cuda:sm_90a").ok()) names.push_back(generator.name);
    }
    return names;
  };
  using Names = std::vector<std::string_view>;
  EXPECT_EQ(generators(half), (Names{"product", "library"}));
  EXPECT_EQ(generators(Plain(Spec({512, 500}, kBrain), Spec({500, 384}, kBrain))),
            Names{"library"});
  OpSignature single = Plain(Spec({1024, 1024}), Spec({1024, 1024}));
  EXPECT_EQ(generators(single), Names{"product"});
  EXPECT_EQ(generators(Plain(Spec({512, 256}), Spec({256, 384}))), (Names{"product", "library"}));
  EXPECT_EQ(generators(Plain(Spec({512, 64}), Spec({64, 768}))), (Names{"product", "library"}));
  single.numerics = {{"float32_matmul_precision", "high"}};
  EXPECT_EQ(generators(single), (Names{"product", "library"}));
  EXPECT_TRUE(generators(Plain(Spec({64, 64}, kBrain), Spec({64, 64}, kBrain))).empty());
}

}  // namespace
}  // namespace cudaforge
