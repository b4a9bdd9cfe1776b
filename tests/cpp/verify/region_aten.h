// Regions of one node, and how their tests run and check them.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "signature/aten_pch.h"
#include "signature/from_aten_region.h"
#include "tests/cpp/verify/spec.h"
#include "verify/checker.h"

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

inline std::unique_ptr<RegionChecker> Make(const OpSignature& signature) {
  auto checker = RegionChecker::Create(signature, 0, 11);
  EXPECT_TRUE(checker.ok()) << checker.status().ToString();
  return checker.ok() ? std::move(*checker) : nullptr;
}

inline std::vector<at::Tensor> Tensors(const OpSignature& signature, const InputSet& set) {
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < set.bytes.size(); ++i) {
    const TensorSpec& spec = signature.inputs[i];
    tensors.push_back(at::from_blob(const_cast<char*>(set.bytes[i].data()), spec.sizes,
                                    spec.strides, ToScalarType(spec.dtype)));
  }
  return tensors;
}

inline std::string BytesOf(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {static_cast<const char*>(flat.const_data_ptr()), flat.nbytes()};
}

}  // namespace cudaforge
