#include <gtest/gtest.h>

#include "generators/tiles/contraction.h"
#include "generators/tiles/product_half_sm90.h"
#include "generators/tiles/search.h"
#include "target/cuda/nvrtc_compiler.h"
#include "tests/cpp/generators/region.h"

namespace cudaforge {
namespace {

using rows::Out;
using rows::Region;
using rows::Spec;

constexpr DType kBF16 = DType::kBFloat16;
constexpr const char* kTarget = "cuda:sm_90a";

TensorSpec Transposed(int64_t rows, int64_t columns) {
  return Spec({rows, columns}, DType::kFloat32, {1, rows});
}

OpSignature OnGpu(OpSignature signature) {
  signature.device = DeviceType::kCuda;
  return signature;
}

OpSignature Mm(TensorSpec a, TensorSpec b) {
  const TensorSpec out = Spec({a.sizes[0], b.sizes[1]}, a.dtype);
  Region region;
  const Json left = region.Input(std::move(a)), right = region.Input(std::move(b));
  region.Call("mm", {left, right}, {out});
  return OnGpu(region.Signature());
}

OpSignature Bmm(TensorSpec a, TensorSpec b) {
  const TensorSpec out = Spec({a.sizes[0], a.sizes[1], b.sizes[2]}, a.dtype);
  Region region;
  const Json left = region.Input(std::move(a)), right = region.Input(std::move(b));
  region.Call("bmm", {left, right}, {out});
  return OnGpu(region.Signature());
}

OpSignature Addmm(TensorSpec self, double alpha = 1, double beta = 1) {
  Region region;
  const Json added = region.Input(std::move(self));
  const Json a = region.Input(Spec({512, 256})), b = region.Input(Transposed(256, 384));
  region.Call("addmm", {added, a, b}, {Spec({512, 384})});
  OpSignature signature = region.Signature();
  signature.nodes[0].kwargs = {{"alpha", alpha}, {"beta", beta}};
  return OnGpu(std::move(signature));
}

// gelu(a b + bias) + residual, and in float32 the sum before gelu.
OpSignature Layer(int64_t m, int64_t n, int64_t k, DType dtype = DType::kFloat32) {
  Region region;
  const Json bias = region.Input(Spec({n}, dtype));
  const Json a = region.Input(Spec({m, k}, dtype));
  const Json b = region.Input(Spec({k, n}, dtype, {1, k}));
  const Json residual = region.Input(Spec({m, n}, dtype));
  const TensorSpec out = Spec({m, n}, dtype);
  const int sum = region.Call("addmm", {bias, a, b}, {out});
  const int active = region.Call("gelu", {Out(sum)}, {out});
  const int added = region.Call("add.Tensor", {Out(active), residual}, {out});
  region.Output(added);
  if (dtype == DType::kFloat32) region.Output(sum);
  return OnGpu(region.Signature());
}

// a b, then times and plus as many matrices.
OpSignature WithMatrices(int64_t m, int64_t n, int64_t k, int matrices) {
  Region region;
  const Json a = region.Input(Spec({m, k})), b = region.Input(Spec({k, n}));
  int out = region.Call("mm", {a, b}, {Spec({m, n})});
  for (int i = 0; i < matrices; ++i) {
    const Json matrix = region.Input(Spec({m, n}));
    out = region.Call(i % 2 == 0 ? "mul.Tensor" : "add.Tensor", {Out(out), matrix}, {Spec({m, n})});
  }
  return OnGpu(region.Signature());
}

// x W, x W', ...: `outputs` of "each" are theirs with a bias and GELU, of "gate" gelu(x W) (x W').
OpSignature Siblings(int64_t m, int64_t k, int64_t n, int products, bool gate,
                     DType dtype = kBF16) {
  Region region;
  const Json x = region.Input(Spec({m, k}, dtype));
  const TensorSpec out = Spec({m, n}, dtype);
  std::vector<int> sums;
  for (int p = 0; p < products; ++p) {
    const Json w = region.Input(Spec({k, n}, dtype, {1, k}));
    if (gate) {
      sums.push_back(region.Call("mm", {x, w}, {out}));
    } else {
      const Json bias = region.Input(Spec({n}, dtype));
      sums.push_back(region.Call("gelu", {Out(region.Call("addmm", {bias, x, w}, {out}))}, {out}));
      region.Output(sums.back());
    }
  }
  if (gate) {
    const int active = region.Call("gelu", {Out(sums[0])}, {out});
    region.Output(region.Call("mul.Tensor", {Out(active), Out(sums[1])}, {out}));
  }
  return OnGpu(region.Signature());
}

// x^T g, and the sums of g's columns: gradients of a layer's weight and bias. `columns`: of those.
OpSignature Gradients(int64_t m, int64_t k, int64_t n, int64_t columns, DType dtype) {
  Region region;
  const Json x = region.Input(Spec({m, k}, dtype, {1, m})), g = region.Input(Spec({k, n}, dtype));
  region.Output(region.Call("mm", {x, g}, {Spec({m, n}, dtype)}));
  region.Output(region.Call("sum.dim_IntList", {g, {columns}, true},
                            {columns == 0 ? Spec({1, n}, dtype) : Spec({k, 1}, dtype)}));
  return OnGpu(region.Signature());
}

std::vector<Candidate> All(const OpSignature& signature) {
  const Status can = tiles::CanGenerateProduct(signature, kTarget);
  EXPECT_TRUE(can.ok()) << can.ToString();
  std::vector<Candidate> all;
  DeviceArch arch;
  arch.target = kTarget;
  arch.multiprocessors = 132;
  const auto search = tiles::MakeProductSearch(signature, arch);
  EXPECT_TRUE(search.ok()) << search.status().ToString();
  while (std::optional<Candidate> candidate = (*search)->Next()) {
    EXPECT_TRUE(candidate->Validate(signature).ok()) << candidate->Validate(signature).ToString();
    (*search)->Tell(all.size(), {true, 1000});
    all.push_back(*std::move(candidate));
  }
  return all;
}

const Launch& LaunchOf(const Candidate& candidate, const std::string& kernel) {
  for (const Launch& launch : candidate.plan.launches) {
    if (launch.kernel == kernel) return launch;
  }
  ADD_FAILURE() << "no launch of " << kernel;
  return candidate.plan.launches.front();
}

std::string Refusal(const OpSignature& signature) {
  return tiles::CanGenerateProduct(signature, kTarget).message();
}

TEST(Product, SplitsSumsForFewTiles) {
  const Candidate few = All(Mm(Spec({128, 4096}), Spec({4096, 128}))).front();
  EXPECT_GT(few.params["parts"], 8);
  EXPECT_EQ(few.plan.launches.back().kernel, "combine");
  // 1,376 tiles: ten waves of 132 blocks, and 56 tiles in parts.
  const Candidate many = All(Mm(Spec({4096, 2048}), Spec({2048, 5504}))).front();
  EXPECT_EQ(LaunchOf(many, "product").grid[0].text(), "132") << "one block a multiprocessor";
  EXPECT_EQ(LaunchOf(many, "combine").grid[0].Evaluate({}).value(), 56 * 128 * 128 / 512);
}

TEST(Product, SplitsLongRowsInPieces) {
  const Candidate candidate = All(Mm(Spec({384, 524288}), Spec({524288, 384}))).front();
  EXPECT_EQ(candidate.plan.launches.front().kernel, "measure");
  EXPECT_GE(LaunchOf(candidate, "split").grid[1].Evaluate({}).value(), 11);
}

// Launches of the kernels, as "NAME first row of all / blocks".
std::vector<std::string> Splits(const std::vector<Launch>& launches) {
  std::vector<std::string> found;
  for (const Launch& launch : launches) {
    if (launch.kernel != "split" && launch.kernel != "measure") continue;
    found.push_back(launch.kernel + " " + launch.args.back().expr.text() + "/" +
                    launch.grid[0].text());
  }
  return found;
}

TEST(Product, SplitsFrozenOperandsAhead) {
  OpSignature signature = Mm(Spec({512, 256}), Transposed(256, 384));
  using Texts = std::vector<std::string>;
  for (const bool a : {false, true}) {
    for (const bool b : {false, true}) {
      signature.inputs[0].frozen = a;
      signature.inputs[1].frozen = b;
      const LaunchPlan plan = All(signature).front().plan;
      Texts ahead, each;
      if (a == b) {
        (a ? ahead : each) = {"split 0/28"};
      } else {
        (a ? ahead : each) = {"split 0/16"};
        (b ? ahead : each) = {"split 512/12"};
      }
      EXPECT_EQ(Splits(plan.prepare), ahead);
      EXPECT_EQ(Splits(plan.launches), each);
      EXPECT_EQ(plan.prepared_bytes.size(), 2 * (size_t{a} + size_t{b}));
    }
  }
}

// Several right operands are split ahead together, if all are frozen.
TEST(Product, SplitsSeveralFrozenOperandsAhead) {
  OpSignature signature = Siblings(512, 256, 384, 2, false, DType::kFloat32);
  signature.inputs[1].frozen = true;
  EXPECT_EQ(Splits(All(signature)[0].plan.launches), std::vector<std::string>{"split 0/40"});
  signature.inputs[3].frozen = true;
  const Candidate candidate = All(signature)[0];
  EXPECT_TRUE(candidate.Validate(signature).ok()) << candidate.Validate(signature).ToString();
  EXPECT_EQ(Splits(candidate.plan.launches), std::vector<std::string>{"split 0/16"});
  EXPECT_EQ(Splits(candidate.plan.prepare), std::vector<std::string>{"split 512/24"});
}

TEST(Product, MeasuresByTheRowsOfEachCall) {
  OpSignature signature = Mm(Spec({128, 16384}), Transposed(16384, 16384));
  // The last candidate: those before read the large operand as it is.
  EXPECT_EQ(Splits(All(signature).back().plan.launches), std::vector<std::string>{"split 0/516"});
  signature.inputs[1].frozen = true;  // 4 blocks have too few rows for the multiprocessors
  const LaunchPlan plan = All(signature).back().plan;
  EXPECT_EQ(Splits(plan.launches), (std::vector<std::string>{"measure 0/4", "split 0/4"}));
  EXPECT_EQ(Splits(plan.prepare), (std::vector<std::string>{"measure 128/512", "split 128/512"}));
}

TEST(Product, SplitsMatricesThatABatchSharesOnce) {
  const int64_t matrix = 2 * (512 + 512) / 32;
  const TensorSpec shared = Spec({2, 256, 512}, DType::kFloat32, {0, 512, 1});
  const Candidate once = All(Bmm(Spec({2, 512, 256}), shared)).front();
  EXPECT_EQ(LaunchOf(once, "split").grid[0].Evaluate({}).value(), matrix - 512 / 32);
  const Candidate each = All(Bmm(Spec({2, 512, 256}), Spec({2, 256, 512}))).front();
  EXPECT_EQ(LaunchOf(each, "split").grid[0].Evaluate({}).value(), matrix);
}

TEST(Product, PassesTheBuffersOfTheEpilogue) {
  const Candidate candidate = All(Layer(512, 384, 256)).front();
  std::vector<std::string> args;
  for (const LaunchArg& arg : LaunchOf(candidate, "product").args) {
    const char* kind = arg.kind == LaunchArg::Kind::kInput    ? "in"
                       : arg.kind == LaunchArg::Kind::kOutput ? "out"
                                                              : "scratch";
    args.push_back(kind + std::to_string(arg.index));
  }
  const std::vector<std::string> expected = {"in1",      "in2",      "scratch0", "scratch3",
                                             "scratch1", "scratch4", "scratch6", "in0",
                                             "in3",      "out0",     "out1"};
  EXPECT_EQ(args, expected);
}

// The sums are in registers: one that is spilled costs more than the tensor cores gain.
TEST(ProductNvrtc, CompilesWithoutSpills) {
  const Result<NvrtcCompiler> compiler = NvrtcCompiler::Create();
  if (!compiler.ok()) GTEST_SKIP() << "needs NVRTC: set CUDAFORGE_CUDA_PATH";
  for (const OpSignature& signature :
       {Mm(Spec({2048, 1024}), Transposed(1024, 3072)),
        Gradients(3072, 2048, 1024, 0, DType::kFloat32),
        Mm(Spec({300, 777}), Spec({777, 1001})),
        Addmm(Spec({512, 1}), 0.5, 2),
        Bmm(Spec({8, 512, 256}), Spec({8, 256, 512})),
        Layer(512, 384, 256),
        Layer(300, 129, 8192),
        Mm(Spec({384, 65536}), Spec({65536, 384})),
        Layer(4096, 3072, 768, kBF16),
        Layer(300, 1000, 8192, DType::kFloat16),
        Mm(Spec({512, 4096}, kBF16, {1, 512}), Spec({4096, 512}, kBF16)),
        Bmm(Spec({8, 512, 256}, kBF16), Spec({8, 256, 300}, kBF16, {256 * 300, 1, 256})),
        Siblings(4096, 768, 768, 3, false),
        Siblings(1000, 1024, 1032, 2, true),
        Siblings(4096, 768, 768, 3, false, DType::kFloat32),
        Siblings(300, 1032, 333, 2, false, DType::kFloat32),
        WithMatrices(4096, 5632, 2048, 6),
        WithMatrices(1000, 3082, 776, 3),
        Bmm(Spec({384, 128, 64}), Spec({384, 64, 128})),
        Bmm(Spec({96, 200, 196}, DType::kFloat32, {200 * 196, 1, 200}), Spec({96, 196, 60}))}) {
    for (const Candidate& candidate : All(signature)) {
      SCOPED_TRACE(signature.Describe() + " " + candidate.params.dump());
      const CompileResult result = compiler->Compile(candidate.source.code, "sm_90a");
      ASSERT_TRUE(result.ok) << result.log;
      EXPECT_EQ(result.log.find("serialized"), std::string::npos) << result.log;
      for (const Launch& launch : candidate.plan.launches) {
        // A few indices, once a tile. With many inputs CUDA 13.2's compiler needs 68.
        const bool half = signature.inputs[0].dtype != DType::kFloat32;
        const bool many_inputs = signature.inputs.size() > 4;
        const int allowed = half || signature.inputs[0].sizes.size() == 3 ? 128
                            : many_inputs                                 ? 96
                                                                          : 0;
        EXPECT_LE(result.resources.at(launch.kernel).at("spill_bytes"), allowed)
            << launch.kernel << result.resources.dump();
      }
    }
  }
}

TEST(Product, AddsUpAnOperand) {
  EXPECT_EQ(All(Gradients(768, 4096, 3072, 0, DType::kFloat32)).size(), 4u);
  const std::string reduces = "no product kernel: the region reduces more than the product's sums";
  EXPECT_EQ(Refusal(Gradients(768, 4096, 3072, 1, DType::kFloat32)), reduces);
  EXPECT_EQ(Refusal(Gradients(768, 4096, 3072, 0, kBF16)), reduces);
  EXPECT_EQ(Refusal(Gradients(128, 4096, 3072, 0, DType::kFloat32)),
            "no product kernel: sums of an operand with few rows");

  OpSignature frozen = Gradients(768, 4096, 3072, 0, DType::kFloat32);
  frozen.inputs[0].frozen = true;
  EXPECT_EQ(Refusal(frozen), reduces);

  // What is computed with them is no part of the region, and each sum is one of its outputs.
  OpSignature more = Gradients(512, 256, 384, 0, DType::kFloat32);
  Node add;
  add.op = "aten::add.Tensor";
  add.args = {Out(0), Out(1)};
  add.outputs = {Spec({512, 384})};
  more.nodes.push_back(add);
  more.outputs = {{1, 0}, {2, 0}};
  EXPECT_EQ(Refusal(more), "no product kernel: it computes with the sums of an operand");
  more.nodes.pop_back();
  more.outputs = {{0, 0}};
  EXPECT_EQ(Refusal(more),
            "no product kernel: the sums of an operand are not one output of the region");
  more.outputs = {{1, 0}, {1, 0}, {0, 0}};
  EXPECT_EQ(Refusal(more),
            "no product kernel: the sums of an operand are not one output of the region");

  // A copy of the sums is the same value, stored in another type or with gaps.
  for (const TensorSpec& form :
       {Spec({1, 384}, kBF16), Spec({1, 384}, DType::kFloat32, {768, 2})}) {
    OpSignature copied = Gradients(512, 256, 384, 0, DType::kFloat32);
    Node copy;
    copy.op = "aten::_to_copy";
    copy.args = {Out(1)};
    if (form.dtype == kBF16) copy.kwargs = {{"dtype", {{"dtype", "bfloat16"}}}};
    copy.outputs = {form};
    copied.nodes.push_back(copy);
    copied.outputs = {{0, 0}, {2, 0}};
    EXPECT_EQ(Refusal(copied),
              "no product kernel: the sums of an operand are stored in another form");
  }
}

TEST(Product, RefusesOtherRegions) {
  const OpSignature good = Mm(Spec({512, 256}), Spec({256, 384}));
  const std::string other = "no product kernel: made for sm_80, sm_86, sm_89, sm_90a and sm_120";
  EXPECT_EQ(tiles::CanGenerateProduct(good, "cuda:sm_75").message(), other);
  const std::string small =
      "no product kernel: needs 64 to 2^24 rows and columns, sums of at least 32 terms, and 2^24 "
      "multiplications";
  EXPECT_EQ(Refusal(Mm(Spec({64, 64}), Spec({64, 64}))), small);
  EXPECT_EQ(Refusal(Mm(Spec({4096, 24}), Spec({24, 4096}))), small);
  EXPECT_EQ(Refusal(Mm(Spec({32, 1001}), Spec({1001, 2001}))),
            "no product kernel: rows of the large operand do not begin at 16 bytes");
  EXPECT_EQ(Refusal(Mm(Spec({512, 256}, DType::kFloat64), Spec({256, 384}, DType::kFloat64))),
            "no product kernel: operands of different types, or not float32, float16 or bfloat16");
  EXPECT_EQ(Refusal(Mm(Spec({4096, 16}, kBF16), Spec({16, 4096}, kBF16))), small);
  EXPECT_EQ(Refusal(Mm(Spec({512, 256}, DType::kFloat32, {512, 2}), Spec({256, 384}))),
            "no product kernel: an operand has gaps between its elements");
  EXPECT_EQ(Refusal(Mm(Spec({512, 256}, DType::kFloat32, {0, 1}), Spec({256, 384}))),
            "no product kernel: an operand is expanded");
  OpSignature cpu = good;
  cpu.device = DeviceType::kCpu;
  EXPECT_EQ(Refusal(cpu), other);
}

// Their kernel is tried first: it reads each operand once and writes nothing but the result.
TEST(Product, BatchesOfSmallMatricesHaveAKernelOfTheirOwn) {
  const std::vector<Candidate> all = All(Bmm(Spec({384, 128, 64}), Spec({384, 64, 128})));
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].params, (Json{{"batch", true}, {"n", 128}}));
  EXPECT_TRUE(all[0].plan.scratch_bytes.empty());
  EXPECT_EQ(LaunchOf(all[0], "product").grid[0].text(), "132");
  EXPECT_EQ(all[1].params, (Json{{"parts", 1}}));
  const auto has_it = [](TensorSpec a, TensorSpec b) {
    return All(Bmm(std::move(a), std::move(b)))[0].params.contains("batch");
  };
  EXPECT_TRUE(
      has_it(Spec({96, 512, 255}, DType::kFloat32, {512 * 256, 256, 1}), Spec({96, 255, 64})));
  EXPECT_FALSE(has_it(Spec({96, 512, 256}), Spec({96, 256, 64})));  // long sums
  EXPECT_FALSE(has_it(Spec({96, 520, 64}), Spec({96, 64, 64})));
  EXPECT_FALSE(has_it(Spec({4, 512, 128}), Spec({4, 128, 512})));
  EXPECT_FALSE(has_it(Spec({96, 128, 64}, DType::kFloat32, {0, 64, 1}), Spec({96, 64, 128})));
  EXPECT_FALSE(has_it(Spec({96, 128, 66}), Spec({96, 66, 128})));  // rows begin at 8 bytes
}

TEST(Product, SeveralOfOneLeftOperandAreOneKernel) {
  const Result<tiles::Contraction> apart =
      tiles::ReadContraction(Siblings(512, 256, 384, 3, false));
  ASSERT_TRUE(apart.ok()) << apart.status().ToString();
  EXPECT_TRUE(apart->is_apart());
  EXPECT_EQ(apart->siblings, (std::vector<int>{3, 5}));
  const Candidate candidate = All(Siblings(512, 256, 384, 3, false))[0];
  EXPECT_EQ(candidate.plan.tensor_maps.size(), 4u);
  EXPECT_EQ(candidate.plan.launches.at(0).args.size(), 4u + 1 + 3 * 2);  // maps, partial, bias, out

  const Result<tiles::Contraction> gate = tiles::ReadContraction(Siblings(512, 256, 384, 2, true));
  ASSERT_TRUE(gate.ok()) << gate.status().ToString();
  EXPECT_TRUE(gate->is_together());
  for (const Candidate& made : All(Siblings(512, 256, 384, 2, true))) {
    EXPECT_EQ(made.plan.tensor_maps.size(), 3u);
    EXPECT_EQ(made.params.at("parts"), 1);
    // Boxes of B have the columns that a tile has of each product.
    EXPECT_EQ(made.plan.tensor_maps[1].box[1].text(),
              std::to_string(made.params.at("n").get<int64_t>() / 2));
  }
}

// One split makes the tiles of the left operand once, and those of all the others.
TEST(Product, SeveralInFloat32AreOneKernel) {
  for (const Candidate& made : All(Siblings(4096, 768, 768, 3, false, DType::kFloat32))) {
    const LaunchPlan& plan = made.plan;
    constexpr int64_t kBytes = 768 * 4;  // of a row's halves
    EXPECT_EQ(plan.scratch_bytes.at(0).bytes.Evaluate({}).value(), 4096 * kBytes);
    EXPECT_EQ(plan.scratch_bytes.at(3).bytes.Evaluate({}).value(), 3 * 768 * kBytes);
    EXPECT_EQ(plan.launches.at(0).kernel, "split");
    EXPECT_EQ(plan.launches.at(0).grid[0].Evaluate({}).value(), (4096 + 3 * 768) / 32);
    EXPECT_EQ(plan.launches.at(1).args.size(), 4u + 5 + 3 * 2);
  }
}

TEST(Product, SeveralWithFewRowsAreKernelsOfTheirOwn) {
  EXPECT_EQ(Refusal(Siblings(128, 4096, 4096, 3, false, DType::kFloat32)),
            "no product kernel: several products with few rows");
  EXPECT_EQ(Refusal(Siblings(128, 768, 768, 3, false, DType::kFloat32)), "");
}

TEST(Product, RefusesOtherSeveralProducts) {
  const std::string several = "no product kernel: several products";
  EXPECT_EQ(Refusal(Siblings(512, 256, 384, 5, false)), several);
  EXPECT_EQ(Refusal(Siblings(512, 256, 384, 2, true, DType::kFloat32)),
            "no product kernel: results of two products in float32");
  EXPECT_EQ(tiles::CanGenerateProduct(Siblings(512, 256, 384, 2, false), "cuda:sm_80").message(),
            "no product kernel: several products in half types on this GPU");
  EXPECT_EQ(Refusal(Siblings(512, 256, 388, 2, true)),
            "no product kernel: results of two products that are no rows of halves");
  OpSignature unequal = Siblings(512, 256, 384, 2, true);
  unequal.inputs[2].strides = {384, 1};
  EXPECT_EQ(Refusal(unequal), several);
  OpSignature of_others = Siblings(512, 256, 384, 2, true);
  of_others.inputs.push_back(of_others.inputs[0]);
  of_others.nodes[1].args[0] = rows::In(3);
  EXPECT_EQ(Refusal(of_others), several);
  OpSignature unlike = Siblings(512, 256, 384, 2, false);
  unlike.nodes.back().op = "aten::relu";
  EXPECT_EQ(Refusal(unlike),
            "no product kernel: several products whose results are not computed alike");
  // One bias for both.
  OpSignature shared = Siblings(512, 256, 384, 2, false);
  shared.nodes[2].args[0] = rows::In(2);
  EXPECT_EQ(tiles::CanGenerateProduct(shared, kTarget).message(), "");
}

TEST(Product, RefusesHalvesThatNoTensorMapDescribes) {
  const OpSignature odd = Mm(Spec({512, 500}, kBF16), Spec({500, 384}, kBF16));
  EXPECT_EQ(Refusal(odd), "no product kernel: rows of an operand do not begin at 16 bytes");
}

// One tile a multiprocessor where the tiles allow it; parts of long sums where they are too few.
TEST(Product, ChoosesTilesOfHalvesByTheirNumber) {
  const auto first = [](int64_t m, int64_t k, int64_t n) {
    return All(Mm(Spec({m, k}, kBF16), Spec({k, n}, kBF16)))[0].params;
  };
  EXPECT_EQ(first(4096, 3072, 768), (Json{{"groups", 2}, {"n", 192}, {"parts", 1}}));
  EXPECT_EQ(first(1024, 1024, 1024), (Json{{"groups", 1}, {"n", 64}, {"parts", 1}}));
  EXPECT_EQ(first(4096, 768, 3072), (Json{{"groups", 1}, {"n", 128}, {"parts", 1}}));
  EXPECT_EQ(first(256, 16384, 512), (Json{{"groups", 1}, {"n", 64}, {"parts", 8}}));
}

TEST(Product, RefusesSumsThatAreReadElsewhere) {
  Region region;
  const Json a = region.Input(Spec({512, 256})), b = region.Input(Spec({256, 512}));
  const int sum = region.Call("mm", {a, b}, {Spec({512, 512})});
  region.Call("sum.dim_IntList", {Out(sum), Json::array({1})}, {Spec({512})});
  EXPECT_EQ(Refusal(OnGpu(region.Signature())),
            "no product kernel: the region reduces more than the product's sums");
}

TEST(Product, GeneratorsUseIt) {
  const OpSignature signature = Mm(Spec({512, 256}), Spec({256, 384}));
  EXPECT_TRUE(CanGenerate(signature, kTarget).ok());
  EXPECT_FALSE(tiles::CanGenerateProduct(signature, "cuda:sm_75").ok());
  DeviceArch arch;
  arch.target = kTarget;
  EXPECT_EQ(MakeSearch(signature, arch).status().code(), StatusCode::kUnsupported);
  arch.multiprocessors = 132;
  auto search = MakeSearch(signature, arch);
  ASSERT_TRUE(search.ok());
  EXPECT_EQ((*search)->Next()->author, "generator:product");
  EXPECT_TRUE(GeneratesHeavyOps(kTarget));
  EXPECT_FALSE(GeneratesHeavyOps("cpu:x86-64-v4"));
}

}  // namespace
}  // namespace cudaforge
