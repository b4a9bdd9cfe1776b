// The contract documents are correct: examples parse, validate and compile, and the named includes
// are allowed.
#include "tests/cpp/forge/contract_example.h"

#include <gtest/gtest.h>

#include <sstream>

#include "forge/region_text.h"
#include "target/cpu/cpu_compiler.h"
#include "target/cuda/nvrtc_compiler.h"

namespace cudaforge {
namespace {

constexpr Language kLanguages[] = {Language::kCuda, Language::kCpu};

const std::string& ContractText(Language language) {
  return FindDocument("contract/" + std::string(LanguageName(language)))->text;
}

Status CheckSource(Language language, const std::string& code) {
  return language == Language::kCuda ? CheckCudaSource(code) : CheckCpuSource(code);
}

// The words in `<...>` with the backquotes around them.
std::vector<std::string> NamedIncludes(const std::string& text) {
  std::vector<std::string> names;
  for (size_t at = text.find("`<"); at != std::string::npos; at = text.find("`<", at + 1)) {
    const size_t end = text.find(">`", at);
    std::string name = text.substr(at + 2, end - at - 2);
    if (name.ends_with("/...")) name.replace(name.size() - 3, 3, "some.h");
    names.push_back(name);
  }
  return names;
}

TEST(ContractExample, ParsesAndMatchesItsRegion) {
  for (const Language language : kLanguages) {
    const Result<Candidate> candidate = ContractExample(language);
    ASSERT_TRUE(candidate.ok()) << candidate.status().ToString();
    const Status valid = candidate->Validate(ExampleRegion(DeviceOf(language)));
    EXPECT_TRUE(valid.ok()) << valid.ToString();
    const Status scanned = CheckSource(language, candidate->source.code);
    EXPECT_TRUE(scanned.ok()) << scanned.ToString();
  }
}

TEST(ContractExample, ShowsItsRegionAsPromptsDo) {
  for (const Language language : kLanguages) {
    std::istringstream lines(DescribeRegion(ExampleRegion(DeviceOf(language))));
    std::string indented;
    for (std::string line; std::getline(lines, line);) indented += "    " + line + "\n";
    EXPECT_NE(ContractText(language).find(indented), std::string::npos) << indented;
  }
}

TEST(ContractExample, CompilesForEveryArchitectureOfInterest) {
  const Result<NvrtcCompiler> nvrtc = NvrtcCompiler::Create();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().ToString();
  const Candidate candidate = ContractExample(Language::kCuda).value();
  for (const char* arch : {"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120"}) {
    const CompileResult result = nvrtc->Compile(candidate.source.code, arch, 60'000);
    ASSERT_TRUE(result.ok) << arch << ": " << result.log;
    EXPECT_EQ(result.resources.at("softmax_rows").at("spill_bytes"), 0) << arch;
    EXPECT_EQ(result.resources.at("softmax_rows").at("stack_bytes"), 0) << arch;
  }
}

// The map is for contiguous rows that start at multiples of 16 bytes.
TEST(Contract, ShowsAValidTensorMap) {
  const std::string& text = ContractText(Language::kCuda);
  const size_t begin = text.find("{\"of\":");
  ASSERT_NE(begin, std::string::npos);
  Json json = ContractExample(Language::kCuda).value().ToJson();
  json["tensor_maps"] = {Json::parse(text.substr(begin, text.find('\n', begin) - begin))};
  json["launches"][0]["args"].push_back({{"tensor_map", 0}});
  const Result<Candidate> candidate = Candidate::FromJson(json);
  ASSERT_TRUE(candidate.ok()) << candidate.status().ToString();
  OpSignature signature = ExampleRegion(DeviceType::kCuda);
  EXPECT_FALSE(candidate->Validate(signature).ok());
  for (TensorSpec* spec : {&signature.inputs[0], &signature.nodes[0].outputs[0]}) {
    spec->sizes[1] = spec->strides[0] = 1008;
  }
  const Status valid = candidate->Validate(signature);
  EXPECT_TRUE(valid.ok()) << valid.ToString();
}

TEST(Contract, NamesOnlyAllowedIncludes) {
  for (const Language language : kLanguages) {
    const std::vector<std::string> names = NamedIncludes(ContractText(language));
    EXPECT_GE(names.size(), 10u);
    for (const std::string& name : names) {
      const Status status = CheckSource(language, "#include <" + name + ">\n");
      EXPECT_TRUE(status.ok()) << status.ToString();
    }
    EXPECT_FALSE(CheckSource(language, "#include <vector>\n").ok());
  }
}

TEST(Contract, NamesOnlyRefusedWords) {
  const std::string& text = ContractText(Language::kCpu);
  const size_t begin = text.find("Refused words");
  const size_t end = text.find(" and the like", begin);
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  int words = 0;
  for (size_t at = text.find('`', begin); at < end; at = text.find('`', at + 1)) {
    const size_t close = text.find('`', at + 1);
    const std::string word = text.substr(at + 1, close - at - 1);
    EXPECT_FALSE(CheckCpuSource("int " + word + ";\n").ok()) << word;
    at = close;
    ++words;
  }
  EXPECT_GE(words, 10);
}

}  // namespace
}  // namespace cudaforge
