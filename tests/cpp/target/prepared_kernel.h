// A CPU kernel with a prepared operand.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "target/target.h"

namespace cudaforge {

// mul(float32[count], float32[count]); the second is frozen.
inline OpSignature PreparedMulSignature(int64_t count) {
  OpSignature signature;
  const TensorSpec spec{DType::kFloat32, {count}, {1}, 4};
  signature.inputs = {spec, spec};
  signature.inputs[1].frozen = true;
  signature.nodes.resize(1);
  signature.nodes[0].op = "aten::mul.Tensor";
  signature.nodes[0].args = Json::array({{{"in", 0}}, {{"in", 1}}});
  signature.nodes[0].outputs = {{DType::kFloat32, {count}, {1}}};
  signature.outputs = {{0, 0}};
  return signature;
}

// Two launches prepare p = `factor` w, by way of scratch memory; one computes y = x p. `more`: a
// statement at the end of that one, with float* x, p, y.
inline Candidate PreparedMul(double factor = 2, const std::string& more = "") {
  constexpr const char* kHead =
      "(void* const* b, const int64_t*, const double* f, int64_t begin, int64_t end) {\n";
  Candidate candidate;
  candidate.author = "generator:test";
  candidate.source = {Language::kCpu,
                      std::string("#include <cstdint>\nextern \"C\" void scale") + kHead +
                          "  for (int64_t i = begin; i < end; ++i)\n"
                          "    static_cast<float*>(b[1])[i] =\n"
                          "        static_cast<float*>(b[0])[i] * static_cast<float>(f[0]);\n"
                          "}\nextern \"C\" void product" +
                          kHead +
                          "  float* x = static_cast<float*>(b[0]);\n"
                          "  float* p = static_cast<float*>(b[1]);\n"
                          "  float* y = static_cast<float*>(b[2]);\n"
                          "  (void)f;\n"
                          "  for (int64_t i = begin; i < end; ++i) y[i] = x[i] * p[i];\n" +
                          more + "\n}\n"};
  using Kind = LaunchArg::Kind;
  const auto launch = [](const char* kernel, std::vector<LaunchArg> args) {
    Launch made;
    made.kernel = kernel;
    made.args = std::move(args);
    made.range = *IntExpr::Parse("in0.size0");
    return made;
  };
  LaunchPlan& plan = candidate.plan;
  plan.scratch_bytes = {ScratchBuffer(*IntExpr::Parse("in0.size0 * 4"))};
  plan.prepared_bytes = {*IntExpr::Parse("in1.size0 * 4")};
  const LaunchArg scratch{Kind::kScratch, 0}, form{Kind::kPrepared, 0};
  plan.prepare = {launch("scale", {{Kind::kInput, 1}, scratch, {Kind::kFloat, 0, 0, factor}}),
                  launch("scale", {scratch, {Kind::kFloat, 0, 0, 1}, form})};
  plan.launches = {launch("product", {{Kind::kInput, 0}, form, {Kind::kOutput, 0}})};
  return candidate;
}

}  // namespace cudaforge
