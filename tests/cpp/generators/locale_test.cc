// The text of a kernel is the same in every locale.

#include <gtest/gtest.h>

#include "generators/generator.h"
#include "region.h"
#include "tests/cpp/in_locale.h"

namespace cudaforge {
namespace {

// Constants with fractions, and sizes with digits that a locale may group.
OpSignature SoftmaxOfScaled() {
  rows::Region region;
  const Json x = region.Input(rows::Spec({64, 12345}));
  const int scaled = region.Call("mul.Scalar", {x, 0.3}, {rows::Spec({64, 12345})});
  region.Call("_softmax", {rows::Out(scaled), 1, false}, {rows::Spec({64, 12345})});
  return region.Signature();
}

OpSignature Product() {
  rows::Region region;
  const Json a = region.Input(rows::Spec({2048, 2048})), b = region.Input(rows::Spec({2048, 2048}));
  region.Call("mm", {a, b}, {rows::Spec({2048, 2048})});
  return region.Signature();
}

std::vector<std::string> Texts(OpSignature signature, const char* target) {
  DeviceArch arch;
  arch.target = target;
  arch.multiprocessors = 132;
  signature.device = arch.is_cuda() ? DeviceType::kCuda : DeviceType::kCpu;
  const auto search = MakeSearch(signature, arch);
  EXPECT_TRUE(search.ok()) << search.status().ToString();
  std::vector<std::string> texts;
  while (search.ok()) {
    const std::optional<Candidate> candidate = (*search)->Next();
    if (!candidate) break;
    texts.push_back(CanonicalJson(candidate->ToJson()));
    (*search)->Tell(texts.size() - 1, {true, static_cast<double>(texts.size())});
  }
  return texts;
}

TEST(KernelText, IsTheSameWithADecimalComma) {
  const auto all = [] {
    return std::vector{Texts(SoftmaxOfScaled(), "cpu:x86-64-v4"),
                       Texts(SoftmaxOfScaled(), "cuda:sm_90a"), Texts(Product(), "cuda:sm_90a")};
  };
  const auto plain = all();
  for (const auto& texts : plain) ASSERT_FALSE(texts.empty());
  const Result<rows::Program> program = rows::Lower(SoftmaxOfScaled());
  ASSERT_TRUE(program.ok());
  const std::string program_text = program->ToString();

  const InLocale german("de_DE");
  if (!german.there()) GTEST_SKIP() << InLocale::kMissing;
  EXPECT_EQ(all(), plain);
  EXPECT_EQ(program->ToString(), program_text);
}

}  // namespace
}  // namespace cudaforge
