// Sets of inputs for tests of what is in them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "signature/roles.h"
#include "tests/cpp/verify/spec.h"
#include "verify/elements.h"
#include "verify/inputs.h"

namespace cudaforge {

inline OpSignature OneInput(TensorSpec spec) {
  OpSignature signature;
  signature.inputs = {std::move(spec)};
  signature.nodes.resize(1);
  signature.nodes[0].op = "aten::relu";
  signature.nodes[0].args = Json::array({{{"in", 0}}});
  signature.nodes[0].outputs = signature.inputs;
  signature.outputs = {{0, 0}};
  return signature;
}

inline std::vector<double> Values(const TensorSpec& spec, const std::string& bytes) {
  std::vector<double> values;
  for (ElementWalk walk(spec); !walk.done(); walk.Next()) {
    values.push_back(LoadElement(spec.dtype, bytes.data() + walk.offset() * DTypeSize(spec.dtype)));
  }
  return values;
}

inline InputSet Make(const OpSignature& signature, InputKind kind, uint64_t seed = 7) {
  const std::vector<InputRole> roles = *FindRoles(signature);
  return MakeInputs(signature, roles, kind, seed);
}

inline std::vector<InputKind> KindsFor(const OpSignature& signature) {
  return InputKindsFor(signature, *FindRoles(signature));
}

}  // namespace cudaforge
