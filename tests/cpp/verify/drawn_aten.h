// Drawn inputs as tensors.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "signature/aten_pch.h"
#include "signature/from_aten_region.h"
#include "tests/cpp/verify/drawn.h"
#include "verify/aten_derive.h"

namespace cudaforge {

// Tensors for the signature's inputs, with their own storage.
inline std::vector<at::Tensor> EmptyInputs(const OpSignature& signature) {
  std::vector<at::Tensor> tensors;
  for (const TensorSpec& spec : signature.inputs) {
    tensors.push_back(
        at::empty_strided(spec.sizes, spec.strides, at::TensorOptions(ToScalarType(spec.dtype))));
  }
  return tensors;
}

inline std::vector<void*> StorageOf(const std::vector<at::Tensor>& tensors) {
  std::vector<void*> storage;
  for (const at::Tensor& tensor : tensors) storage.push_back(tensor.data_ptr());
  return storage;
}

// The set with this name, planned with seed `plan`, drawn from `seed`, with derived inputs.
inline std::vector<at::Tensor> DrawnTensors(const OpSignature& signature, std::string_view name,
                                            uint64_t plan, uint64_t seed) {
  std::vector<at::Tensor> tensors = EmptyInputs(signature);
  const auto roles = FindRoles(signature);
  CF_CHECK(roles.ok()) << roles.status().ToString();
  const std::vector<DrawSet> sets = *PlanDraws(signature, *roles, plan);
  for (const DrawSet& set : sets) {
    if (set.name != name) continue;
    const auto drawer = Drawer::Create(DeviceType::kCpu, nullptr).value();
    Status drawn = drawer->Draw(set, signature, seed, StorageOf(tensors));
    if (drawn.ok()) drawn = DeriveInputs(signature, tensors);
    EXPECT_TRUE(drawn.ok()) << drawn.ToString();
    return tensors;
  }
  ADD_FAILURE() << "no set " << name;
  return tensors;
}

}  // namespace cudaforge
