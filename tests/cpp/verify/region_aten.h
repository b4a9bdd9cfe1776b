// Regions of one node.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "signature/aten_pch.h"
#include "signature/from_aten_region.h"
#include "tests/cpp/verify/spec.h"

namespace cudaforge {

inline TensorSpec F32(std::vector<int64_t> sizes, std::vector<int64_t> strides = {}) {
  return Spec(DType::kFloat32, std::move(sizes), std::move(strides));
}

inline Json In(int i) { return {{"in", i}}; }

inline OpSignature Region(std::vector<TensorSpec> inputs, const std::string& op, Json args,
                          std::vector<TensorSpec> outputs, Json kwargs = Json::object()) {
  OpSignature signature;
  for (TensorSpec& spec : inputs) spec.alignment = DTypeSize(spec.dtype);
  signature.inputs = std::move(inputs);
  signature.nodes.push_back({op, std::move(args), std::move(kwargs), std::move(outputs)});
  for (int o = 0; o < static_cast<int>(signature.nodes[0].outputs.size()); ++o) {
    if (signature.nodes[0].HasOutput(o)) signature.outputs.push_back({0, o});
  }
  return signature;
}

inline TensorSpec Absent() {
  TensorSpec spec;
  spec.absent = true;
  return spec;
}

}  // namespace cudaforge
