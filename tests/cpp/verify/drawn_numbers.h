// Counts values in drawn sets.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/cpp/verify/drawn.h"
#include "verify/draw_plan.h"

namespace cudaforge {

using Numbers = std::vector<double>;

inline TensorSpec Floats(std::vector<int64_t> sizes) {
  return Spec(DType::kFloat32, std::move(sizes));
}

inline OpSignature SoftmaxOf(TensorSpec spec) {
  return Call("aten::_softmax", {Arg(0), -1, false}, {spec}, {spec});
}

inline int64_t Count(const Numbers& values, const auto& holds) {
  return std::count_if(values.begin(), values.end(), holds);
}
inline bool IsNan(double v) { return std::isnan(v); }
inline bool IsInfinite(double v) { return std::isinf(v); }

inline std::vector<std::string> NamesOf(const OpSignature& signature) {
  std::vector<std::string> names;
  const std::vector<DrawSet> sets = *PlanDraws(signature, *FindRoles(signature), 7);
  for (const DrawSet& set : sets) {
    names.push_back(set.name);
  }
  return names;
}
inline int64_t CountNamed(const OpSignature& signature, std::string_view begin) {
  const std::vector<std::string> names = NamesOf(signature);
  return std::count_if(names.begin(), names.end(),
                       [&](const std::string& name) { return name.starts_with(begin); });
}

}  // namespace cudaforge
