#include <gtest/gtest.h>

#include <set>

#include "generators/generator.h"
#include "region.h"

namespace cudaforge {
namespace {

using rows::Region;
using rows::Spec;

OpSignature Sum(std::vector<int64_t> sizes) {
  Region region;
  region.Call("sum", {region.Input(Spec(std::move(sizes)))}, {Spec({})});
  return region.Signature();
}

DeviceArch Arch(const char* target) {
  DeviceArch arch;
  arch.target = target;
  if (arch.is_cuda()) arch.multiprocessors = 108;
  return arch;
}

// Runs a search with times from `ns`; returns the candidates' canonical texts.
template <typename Time>
std::vector<std::string> Walk(OpSignature signature, const char* target, Time ns) {
  signature.device = Arch(target).is_cuda() ? DeviceType::kCuda : DeviceType::kCpu;
  auto search = MakeSearch(signature, Arch(target));
  EXPECT_TRUE(search.ok()) << search.status().ToString();
  std::vector<std::string> texts;
  while (search.ok()) {
    const std::optional<Candidate> candidate = (*search)->Next();
    if (!candidate) break;
    EXPECT_TRUE(candidate->Validate(signature).ok()) << candidate->Validate(signature).ToString();
    texts.push_back(candidate->ToJson().dump());
    (*search)->Tell(texts.size() - 1, {true, ns(texts.size())});
  }
  return texts;
}

TEST(Search, ReturnsDistinctCandidatesWithinLimits) {
  for (const char* target : {"cpu:x86-64-v4", "cuda:sm_90a"}) {
    const auto texts = Walk(Sum({1 << 20}), target, [](size_t n) { return 1000.0 - n; });
    EXPECT_GE(texts.size(), 3u) << target;
    EXPECT_LE(texts.size(), 60u) << target;
    EXPECT_EQ(std::set<std::string>(texts.begin(), texts.end()).size(), texts.size()) << target;
  }
}

TEST(Search, IsDeterministic) {
  auto ns = [](size_t n) { return static_cast<double>(n * 7919 % 101); };
  EXPECT_EQ(Walk(Sum({64, 4096}), "cuda:sm_90a", ns), Walk(Sum({64, 4096}), "cuda:sm_90a", ns));
}

TEST(Search, EndsIfNoCandidateIsCorrect) {
  auto search = MakeSearch(Sum({1 << 20}), Arch("cpu:x86-64-v4"));
  ASSERT_TRUE(search.ok());
  size_t count = 0;
  while ((*search)->Next()) {
    (*search)->Tell(count, {});
    ASSERT_LT(++count, 100u);
  }
  EXPECT_GT(count, 1u);
}

TEST(Search, NamesUnsupportedOps) {
  Region region;
  region.Call("sort", {region.Input(Spec({8}))}, {Spec({8}), Spec({8}, DType::kInt64)});
  const auto search = MakeSearch(region.Signature(), Arch("cpu:x86-64-v4"));
  EXPECT_EQ(search.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(search.status().message().find("aten::sort has no lowering"), std::string::npos);
  EXPECT_FALSE(CanGenerate(region.Signature(), "cpu:x86-64-v4").ok());
  EXPECT_TRUE(CanGenerate(Sum({8}), "cpu:x86-64-v4").ok());
}

TEST(Search, ListsItsOps) {
  auto has = [](const std::vector<std::string>& ops, const char* op) {
    return std::find(ops.begin(), ops.end(), op) != ops.end();
  };
  EXPECT_TRUE(has(AnchorOps(), "aten::_softmax"));
  EXPECT_TRUE(has(AnchorOps(), "aten::sum.dim_IntList"));
  EXPECT_TRUE(has(PointwiseOps(), "aten::add.Tensor"));
  EXPECT_FALSE(has(PointwiseOps(), "aten::_softmax"));
}

}  // namespace
}  // namespace cudaforge
