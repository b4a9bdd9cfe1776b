// Regions of all families of operators, for the tests of slices.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/cpp/verify/region_aten.h"

namespace cudaforge {

class RegionBuilder {
 public:
  Json Input(std::vector<int64_t> sizes, DType dtype = DType::kFloat32,
             std::vector<int64_t> strides = {}) {
    signature_.inputs.push_back(Spec(dtype, std::move(sizes), std::move(strides)));
    return {{"in", signature_.inputs.size() - 1}};
  }
  // The first result; `out` names others.
  Json Call(const std::string& op, Json args, std::vector<TensorSpec> results,
            Json kwargs = Json::object()) {
    signature_.nodes.push_back({"aten::" + op, std::move(args), std::move(kwargs), results});
    return {{"node", signature_.nodes.size() - 1}, {"out", 0}};
  }
  static Json Other(Json result, int out) {
    result["out"] = out;
    return result;
  }
  OpSignature Done(const std::vector<Json>& outputs) {
    for (const Json& output : outputs) {
      signature_.outputs.push_back({output["node"].get<int>(), output["out"].get<int>()});
    }
    auto normal = NormalizeAten(signature_);
    EXPECT_TRUE(normal.ok()) << normal.status().ToString();
    return normal.ok() ? *normal : signature_;
  }

 private:
  OpSignature signature_;
};

struct SliceRegion {
  std::string name;
  OpSignature signature;
  std::vector<bool> free;  // by output: true if it has a free axis
};

inline Json L(std::vector<int64_t> numbers) { return numbers; }

std::vector<SliceRegion> SliceRegions();

}  // namespace cudaforge
