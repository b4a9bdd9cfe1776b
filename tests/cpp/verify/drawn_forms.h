// Drawn tensors of every form, for tests of loops and kernels.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/cpp/verify/drawn.h"
#include "verify/draw_layout.h"

namespace cudaforge {

// One of each form in each layout, with all other features of a set.
inline std::vector<device::DrawnTensor> TensorsOfEveryForm(DType dtype) {
  using device::DrawForm;
  using device::DrawnTensor;
  std::vector<DrawnTensor> tensors;
  const bool floating = IsFloating(dtype);
  const auto first = static_cast<int>(floating ? DrawForm::kNormal : DrawForm::kListed);
  const auto last = static_cast<int>(floating ? DrawForm::kListed : DrawForm::kMaskBits);
  const std::vector<std::pair<TensorSpec, std::vector<int64_t>>> layouts = {
      {Spec(dtype, {37, 101}), {1, 101}},
      {Spec(dtype, {101, 37}), {101, 1}},
      {Spec(dtype, {9000}), {9000}},
      {Spec(dtype, {12, 40, 3}, {130, 3, 1}), {1, 40, 1}},
      {Spec(dtype, {31, 33}, {70, 2}), {1, 33}},
      {Spec(dtype, {3, 5000}), {3, 1}}};
  for (const auto& [spec, together] : layouts) {
    for (int form = first; form <= last; ++form) {
      DrawnTensor tensor = LayOut(spec, together);
      for (auto& kind : tensor.kinds) kind = {static_cast<DrawForm>(form), form % 2, 5, 2};
      tensor.kinds[3].detail = 4;
      tensor.gap = {floating ? DrawForm::kNormal : DrawForm::kBelow, 0, 3, 1};
      tensor.gap_is_ordinary = form % 2;
      tensor.stream = static_cast<uint32_t>(form);
      tensor.rotation = 77;
      tensor.step = 3;
      for (uint64_t& entry : tensor.list)
        entry = 3 + 5 * static_cast<uint64_t>(&entry - tensor.list);
      tensor.ignore = -100;
      tensor.spots = 1;
      tensor.spot[0] = {tensor.elements / 2 + 1, floating ? 0x7f800000u : 3u};
      tensor.singles = static_cast<device::DrawSingles>(form % 3);
      for (auto& pattern : tensor.patterns) pattern = {4, -3, device::DrawPlace::kInside, 0};
      tensor.every = DivisorOf(2);
      tensors.push_back(tensor);
    }
  }
  return tensors;
}

inline OpSignature RegionOfTensor(DType dtype, const device::DrawnTensor& tensor) {
  OpSignature signature;
  signature.inputs = {Spec(dtype, {tensor.elements})};
  return signature;
}

inline std::string BytesOfTensor(DType dtype, const device::DrawnTensor& tensor, uint64_t seed) {
  DrawSet set;
  set.tensors = {tensor};
  return DrawBytes(RegionOfTensor(dtype, tensor), set, seed)[0];
}

}  // namespace cudaforge
