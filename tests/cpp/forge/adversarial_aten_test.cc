// Every candidate under tests/adversarial gets the verdict that its file announces.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "tests/cpp/worker/fake_target.h"
#include "verify/checker.h"
#include "verify/local_evaluator.h"
#include "worker/worker_client.h"

namespace cudaforge {
namespace {

TensorSpec Spec(DType dtype, std::vector<int64_t> sizes, int64_t alignment) {
  TensorSpec spec;
  spec.dtype = dtype;
  spec.sizes = std::move(sizes);
  spec.strides = ContiguousStrides(spec.sizes);
  spec.alignment = alignment;
  return spec;
}

struct Region {
  OpSignature signature;
  int64_t rows = 0;
  int64_t columns = 0;
  std::unique_ptr<RegionChecker> checker;
};

OpSignature OneNode(std::vector<TensorSpec> inputs, std::string op, Json args, Json kwargs,
                    TensorSpec output) {
  OpSignature signature;
  signature.inputs = std::move(inputs);
  signature.nodes.resize(1);
  signature.nodes[0] = {std::move(op), std::move(args), std::move(kwargs), {std::move(output)}};
  signature.outputs = {{0, 0}};
  return signature;
}

OpSignature SignatureOf(const std::string& name) {
  const Json x = {{"in", 0}};
  const auto in = [](DType dtype, std::vector<int64_t> sizes) {
    return Spec(dtype, std::move(sizes), DTypeSize(dtype));
  };
  const auto out = [](DType dtype, std::vector<int64_t> sizes) {
    return Spec(dtype, std::move(sizes), 1);
  };
  const DType f32 = DType::kFloat32;
  if (name == "softmax") {
    return OneNode({in(f32, {64, 512})}, "aten::_softmax", {x, -1, false}, Json::object(),
                   out(f32, {64, 512}));
  }
  if (name == "sigmoid") {
    return OneNode({in(f32, {64, 512})}, "aten::sigmoid", Json::array({x}), Json::object(),
                   out(f32, {64, 512}));
  }
  if (name == "add") {
    return OneNode({in(f32, {64, 512}), in(f32, {64, 512})}, "aten::add.Tensor",
                   Json::array({x, {{"in", 1}}}), {{"alpha", 1}}, out(f32, {64, 512}));
  }
  if (name == "add_integers") {
    return OneNode({in(DType::kInt64, {64, 512}), in(DType::kInt64, {64, 512})}, "aten::add.Tensor",
                   Json::array({x, {{"in", 1}}}), {{"alpha", 1}}, out(DType::kInt64, {64, 512}));
  }
  if (name == "var") {
    return OneNode({in(f32, {64, 512})}, "aten::var.correction", Json::array({x, Json::array({1})}),
                   {{"correction", 0}, {"keepdim", false}}, out(f32, {64}));
  }
  if (name == "amax") {
    return OneNode({in(f32, {64, 512})}, "aten::amax", {x, Json::array({1}), false}, Json::object(),
                   out(f32, {64}));
  }
  if (name == "argmax") {
    return OneNode({in(f32, {64, 512})}, "aten::argmax", {x, 1, false}, Json::object(),
                   out(DType::kInt64, {64}));
  }
  CF_CHECK(name == "sum_half") << "unknown region " << name;
  return OneNode({in(DType::kFloat16, {64, 512})}, "aten::sum.dim_IntList",
                 Json::array({x, Json::array({1}), false}), {{"dtype", nullptr}},
                 out(DType::kFloat16, {64}));
}

const Region& RegionOf(const std::string& name) {
  static std::map<std::string, Region> regions;
  Region& region = regions[name];
  if (region.checker == nullptr) {
    region.signature = SignatureOf(name);
    region.rows = region.signature.inputs[0].sizes[0];
    region.columns = region.signature.inputs[0].sizes[1];
    auto checker = RegionChecker::Create(region.signature, 0, 20260101);
    CF_CHECK(checker.ok()) << name << ": " << checker.status().ToString();
    region.checker = std::move(*checker);
  }
  return region;
}

std::string Header(const std::string& text, const std::string& field) {
  const std::string key = "// " + field + ": ";
  const size_t at = text.find(key);
  CF_CHECK(at != std::string::npos) << field;
  return text.substr(at + key.size(), text.find('\n', at) - at - key.size());
}

// What the forge says of the candidate, alone and with all the time it needs.
Verdict Judge(const Region& region, const std::string& code) {
  WorkerOptions options;
  options.executable = std::string(CUDAFORGE_BINARY_DIR) + "/cudaforge-worker";
  WorkerClient client(options);
  const Candidate candidate = CpuCandidate(code, static_cast<int>(region.signature.inputs.size()),
                                           std::to_string(region.rows), region.columns);
  LocalEvaluator evaluator(region.signature, client, *region.checker);
  EvaluatorSettings settings;
  settings.run_timeout_ms = 3000;
  const auto found = ProveCandidate(evaluator, candidate, settings);
  CF_CHECK(found.ok()) << found.status().ToString();
  EXPECT_EQ(found->kernel.has_value(), found->findings.verdict.accepted());
  return found->findings.verdict;
}

class Adversarial : public ::testing::TestWithParam<std::string> {};

TEST_P(Adversarial, GetsItsVerdict) {
  const std::string code = *ReadFile(GetParam());
  const Verdict verdict = Judge(RegionOf(Header(code, "region")), code);
  EXPECT_EQ(VerdictName(verdict.kind), Header(code, "verdict")) << verdict.ToJson().dump();
}

std::vector<std::string> Files() {
  std::vector<std::string> files;
  const std::string folder = std::string(CUDAFORGE_SOURCE_DIR) + "/tests/adversarial/cpu";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

INSTANTIATE_TEST_SUITE_P(Cpu, Adversarial, ::testing::ValuesIn(Files()), [](const auto& info) {
  const std::string name = std::filesystem::path(info.param).filename().string();
  return name.substr(0, name.find('.'));
});

TEST(AdversarialFolder, IsNotEmpty) { EXPECT_GE(Files().size(), 30u); }

}  // namespace
}  // namespace cudaforge
