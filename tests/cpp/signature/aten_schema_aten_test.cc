#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "signature/aten_schema.h"

namespace cudaforge {
namespace {

std::string NameOf(const std::optional<c10::OperatorHandle>& op) {
  return op ? c10::toString(op->operator_name()) : "none";
}

TEST(AtenSchema, OutVariantsAndWhatTheyAreTheVariantsOf) {
  for (const auto& [functional, out] : std::vector<std::pair<std::string, std::string>>{
           {"aten::sum.dim_IntList", "aten::sum.IntList_out"},
           {"aten::_softmax", "aten::_softmax.out"},
           {"aten::mm", "aten::mm.out"},
           {"aten::max_pool2d_with_indices", "aten::max_pool2d_with_indices.out"}}) {
    EXPECT_EQ(NameOf(OutVariantOf(FindAtenOp(functional).value())), out);
    EXPECT_EQ(NameOf(FunctionalOf(FindAtenOp(out).value())), functional);
    EXPECT_EQ(NameOf(FunctionalOf(FindAtenOp(functional).value())), "none");
  }
  EXPECT_EQ(NameOf(FunctionalOf(FindAtenOp("aten::add_.Tensor").value())), "none");
  EXPECT_EQ(FindAtenOp("aten::nothing").status().code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace cudaforge
