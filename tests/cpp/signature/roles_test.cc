#include "signature/roles.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace cudaforge {
namespace {

TensorSpec SpecOfSizes(DType dtype, std::vector<int64_t> sizes) {
  TensorSpec spec;
  spec.dtype = dtype;
  spec.strides = ContiguousStrides(sizes);
  spec.sizes = std::move(sizes);
  spec.alignment = DTypeSize(dtype);
  return spec;
}

// A table, and a lookup of a view of indices in it by `op`.
OpSignature Lookup(const char* op) {
  const TensorSpec table = SpecOfSizes(DType::kFloat32, {5, 8});
  OpSignature signature;
  signature.inputs = {table, SpecOfSizes(DType::kInt64, {6})};
  signature.nodes = {{"aten::view",
                      {{{"in", 1}}, Json::array({2, 3})},
                      Json::object(),
                      {SpecOfSizes(DType::kInt64, {2, 3})}},
                     {op,
                      {{{"in", 0}}, {{"node", 0}, {"out", 0}}, -1, false, false},
                      Json::object(),
                      {SpecOfSizes(DType::kFloat32, {2, 3, 8})}}};
  signature.outputs = {{1, 0}};
  return signature;
}

TEST(Roles, PassThroughViews) {
  const auto roles = FindRoles(Lookup("aten::embedding"));
  ASSERT_TRUE(roles.ok()) << roles.status().ToString();
  EXPECT_EQ((*roles)[0].kind, InputRole::Kind::kValue);
  EXPECT_EQ((*roles)[1].kind, InputRole::Kind::kIndex);
  EXPECT_EQ((*roles)[1].limit, 5);
}

TEST(Roles, UnknownUsesOfIntegersAreRefused) {
  EXPECT_EQ(FindRoles(Lookup("aten::index_add")).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(FindRoles(Lookup("aten::_native_multi_head_attention")).status().code(),
            StatusCode::kUnsupported);
}

}  // namespace
}  // namespace cudaforge
