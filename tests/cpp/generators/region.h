// Builds signatures and runs their lowered programs for the tests of lowering.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "generators/generator.h"
#include "generators/rows/row_program.h"
#include "run_program.h"
#include "tests/cpp/generators/special_values.h"

namespace cudaforge::rows {

inline TensorSpec Spec(std::vector<int64_t> sizes, DType dtype = DType::kFloat32,
                       std::vector<int64_t> strides = {}) {
  TensorSpec spec;
  spec.dtype = dtype;
  spec.strides = strides.empty() ? ContiguousStrides(sizes) : std::move(strides);
  spec.sizes = std::move(sizes);
  spec.alignment = 16;
  return spec;
}

inline Json In(int i) { return Json{{"in", i}}; }
inline Json Out(int node, int out = 0) { return Json{{"node", node}, {"out", out}}; }

// A region under construction; the last node's outputs are the region's unless Output() names some.
class Region {
 public:
  Json Input(TensorSpec spec) {
    signature_.inputs.push_back(std::move(spec));
    return In(static_cast<int>(signature_.inputs.size()) - 1);
  }
  int Call(const std::string& op, Json args, std::vector<TensorSpec> outputs) {
    Node node;
    node.op = "aten::" + op;
    node.args = std::move(args);
    node.outputs = std::move(outputs);
    signature_.nodes.push_back(std::move(node));
    return static_cast<int>(signature_.nodes.size()) - 1;
  }
  void Output(int node, int out = 0) { signature_.outputs.push_back({node, out}); }
  OpSignature Signature() const {
    OpSignature signature = signature_;
    if (signature.outputs.empty()) {
      const int last = static_cast<int>(signature.nodes.size()) - 1;
      for (size_t k = 0; k < signature.nodes.back().outputs.size(); ++k) {
        signature.outputs.push_back({last, static_cast<int>(k)});
      }
    }
    return signature;
  }

 private:
  OpSignature signature_;
};

// Random storage for an input: floats in about [-2, 2], integers in [0, 4].
inline Memory RandomMemory(const TensorSpec& spec, unsigned seed) {
  std::mt19937 random(seed);
  Memory memory(static_cast<size_t>(spec.StorageBytes() / DTypeSize(spec.dtype)));
  for (Num& number : memory) {
    const double f = static_cast<double>(random() % 4001) / 1000 - 2;
    number = IsFloating(spec.dtype) ? Num{static_cast<float>(f), 0}
                                    : Num{0, static_cast<int64_t>(random() % 5)};
    if (spec.dtype == DType::kBool) number.i %= 2;
    if (spec.dtype == DType::kFloat16) number.f = RoundHalf(number.f);
    if (spec.dtype == DType::kBFloat16) number.f = RoundBF16(number.f);
  }
  return memory;
}

inline std::vector<Memory> RandomInputs(const OpSignature& signature) {
  std::vector<Memory> inputs;
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    inputs.push_back(RandomMemory(signature.inputs[i], static_cast<unsigned>(i) + 1));
  }
  return inputs;
}

// The logical elements of a tensor in row-major order.
inline Memory Logical(const TensorSpec& spec, const Memory& memory) {
  Memory result;
  for (int64_t flat = 0; flat < spec.numel(); ++flat) {
    int64_t rest = flat, at = 0;
    for (size_t d = spec.sizes.size(); d-- > 0; rest /= spec.sizes[d]) {
      at += rest % spec.sizes[d] * spec.strides[d];
    }
    result.push_back(memory.at(static_cast<size_t>(at)));
  }
  return result;
}

// Lowers, checks and runs; the outputs' logical elements.
inline std::vector<Memory> LowerAndRun(const OpSignature& signature,
                                       const std::vector<Memory>& inputs) {
  const Result<Program> program = Lower(signature);
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  if (!program.ok()) return std::vector<Memory>(signature.outputs.size());
  EXPECT_TRUE(program->Validate(signature).ok());
  const std::vector<Memory> outputs = ProgramRunner::Run(*program, signature, inputs);
  std::vector<Memory> logical;
  for (size_t o = 0; o < outputs.size(); ++o) {
    logical.push_back(Logical(signature.output_spec(o), outputs[o]));
  }
  return logical;
}

inline void ExpectNear(const Memory& got, const std::vector<double>& want,
                       double tolerance = 1e-5) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isfinite(want[i])) {
      EXPECT_NEAR(got[i].f, want[i], tolerance * std::max(1.0, std::abs(want[i])))
          << "element " << i;
    } else if (std::isnan(want[i])) {
      EXPECT_TRUE(std::isnan(got[i].f)) << "element " << i;
    } else {
      EXPECT_EQ(got[i].f, want[i]) << "element " << i;
    }
  }
}

inline void ExpectEqual(const Memory& got, const std::vector<int64_t>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(got[i].i, want[i]) << "element " << i;
}

}  // namespace cudaforge::rows

namespace cudaforge {

// The search of the first generator that can make the region, else why there is none.
inline Result<std::unique_ptr<CandidateSearch>> MakeSearch(const OpSignature& signature,
                                                           const DeviceArch& arch) {
  CF_RETURN_IF_ERROR(CanGenerate(signature, arch.target));
  for (const Generator& generator : Generators()) {
    if (generator.can_make(signature, arch.target).ok()) return generator.search(signature, arch);
  }
  return Status::Internal("nobody can make it");
}

}  // namespace cudaforge
