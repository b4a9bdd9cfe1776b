#include "signature/op_facts.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace cudaforge {
namespace {

TEST(OpFacts, AcceptAnyFormOfTheName) {
  for (const char* name : {"sum", "aten::sum", "aten::sum.dim_IntList"}) {
    EXPECT_EQ(FactsOf(name).kind, OpKind::kReduces) << name;
  }
  EXPECT_EQ(&FactsOf("aten::sum"), &FactsOf("aten::sum.dim_IntList"));
}

TEST(OpFacts, UnknownOpsHaveDefaultFacts) {
  for (const char* name : {"aten::bessel_j0", "prims::sum", "mine::sum", ""}) {
    const OpFacts& facts = FactsOf(name);
    EXPECT_EQ(facts.kind, OpKind::kUnknown) << name;
    EXPECT_EQ(facts.match, Match::kTolerance) << name;
    EXPECT_EQ(facts.needs, OpNeeds::kEverything) << name;
  }
}

TEST(OpFacts, SayHowResultsAreCompared) {
  EXPECT_EQ(FactsOf("aten::permute").match, Match::kBitwise);
  EXPECT_EQ(FactsOf("aten::relu").match, Match::kEqual);
  EXPECT_EQ(FactsOf("aten::amax").match, Match::kEqual);
  EXPECT_EQ(FactsOf("aten::exp").match, Match::kTolerance);
}

TEST(OpFacts, SayWhichElementsAreNeeded) {
  EXPECT_EQ(FactsOf("aten::mul.Tensor").needs, OpNeeds::kItsPlace);
  EXPECT_EQ(FactsOf("aten::cumsum").needs, OpNeeds::kAxes);
  EXPECT_EQ(FactsOf("aten::_softmax_backward_data").axes, 2);
  EXPECT_EQ(FactsOf("aten::native_layer_norm").needs, OpNeeds::kTrailing);
  EXPECT_EQ(FactsOf("aten::native_group_norm").axes, 6);
  EXPECT_EQ(FactsOf("aten::avg_pool2d").needs, OpNeeds::kWindow);
  EXPECT_EQ(FactsOf("aten::mm").needs, OpNeeds::kRowAndColumn);
}

TEST(OpFacts, HaveRolesForIndicesAndLabels) {
  const OperandFacts& index = FactsOf("aten::gather").operands[0];
  EXPECT_EQ(index.argument, 2);
  EXPECT_EQ(index.role, OperandRole::kIndex);
  EXPECT_EQ(index.limit, IndexLimit::kSizeOfDim);
  EXPECT_EQ(FactsOf("aten::nll_loss_forward").operands[0].role, OperandRole::kTarget);
  EXPECT_EQ(FactsOf("aten::sum").operands[0].role, OperandRole::kValue);
}

TEST(OpFacts, ListHeavyOps) {
  const std::vector<std::string>& heavy = HeavyOps();
  EXPECT_TRUE(std::is_sorted(heavy.begin(), heavy.end()));
  EXPECT_NE(std::find(heavy.begin(), heavy.end(), "aten::mm"), heavy.end());
  for (const std::string& op : heavy) {
    EXPECT_EQ(FactsOf(op).kind, OpKind::kContracts) << op;
    EXPECT_NE(FactsOf(op).work, OpWork::kElements) << op;
  }
}

TEST(OpFacts, MapKernelsToTheirCall) {
  const std::string_view attention = "aten::scaled_dot_product_attention";
  EXPECT_EQ(RegionOpName("aten::_scaled_dot_product_flash_attention"), attention);
  for (const std::string_view op :
       {attention, std::string_view("aten::mm"), std::string_view("aten::sum.dim_IntList"),
        std::string_view("aten::_scaled_dot_product_flash_attention.quantized")}) {
    EXPECT_EQ(RegionOpName(op), op);
  }
}

TEST(OpFacts, NameTheFamilies) {
  EXPECT_EQ(OpFamilyName(OpFamily::kAttention), "attention");
  EXPECT_EQ(OpFamilyName(FactsOf("aten::_log_softmax").family), "softmax");
  EXPECT_EQ(OpFamilyName(OpFamily::kOther), "other");
}

TEST(OpFacts, ListPartsOfCompositeOverloads) {
  EXPECT_EQ(PartsOf("aten::softmax.int"), std::vector<std::string>{"aten::_softmax"});
  EXPECT_TRUE(PartsOf("aten::_softmax").empty());
}

}  // namespace
}  // namespace cudaforge
