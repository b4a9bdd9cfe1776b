#include "cache/source_pack.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "cache/pack.h"
#include "tests/cpp/cache/test_records.h"

namespace cudaforge {
namespace {

CacheRecord WinnerWithSource(int i, const char* language = "cuda") {
  CacheRecord record = TestWinner(i);
  Json signature = SignatureOf(record);
  signature["nodes"] = {{{"op", "aten::_softmax"}}, {{"op", "aten::mul.Tensor"}}};
  SetSignature(&record, signature);
  record.variants[0].candidate = LenientText({{"language", language},
                                              {"code", "kernel \"" + std::to_string(i) + "\"\n"},
                                              {"author", "agent:test"}});
  return record;
}

class SourcePack : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(from_->Put(WinnerWithSource(i)).ok());
    ASSERT_TRUE(from_->Put(TestNegative(8)).ok());
  }
  PackSummary Write(const char* arch = "") { return WriteSourcePack(*from_, pack_, arch).value(); }
  Result<PackSummary> Import() {
    ImportHooks hooks;
    hooks.accept = [](CacheRecord* record) {
      for (Variant& variant : record->variants) {
        EXPECT_TRUE(variant.binary.empty());
        variant.binary = "built here";
      }
      return Status::Ok();
    };
    return ImportPack(*to_, pack_, hooks);
  }
  std::string Place(int i) {
    return pack_ + "/softmax-mul-" + WinnerWithSource(i).key.substr(0, 12);
  }

  TempDir folder_ = TestFolder();
  std::string pack_ = folder_.path() + "/sources";
  std::unique_ptr<KernelStore> from_ = MakeMemoryKernelStore();
  std::unique_ptr<KernelStore> to_ = OpenStore(folder_.path() + "/cache");
};

TEST_F(SourcePack, CarriesWinnersAsText) {
  ASSERT_TRUE(from_->Put(WinnerWithSource(7, "ptx")).ok());
  ASSERT_TRUE(from_->Put(WinnerWithSource(9, "cpu")).ok());
  EXPECT_EQ(Write("cuda:sm_80").exported, 0);
  EXPECT_FALSE(PathExists(pack_));
  EXPECT_EQ(Write().exported, 5);
  EXPECT_EQ(Write().exported, 5);  // a second time, over the first
  EXPECT_EQ(*ReadFile(Place(1) + "/kernel.cu"), "kernel \"1\"\n");
  EXPECT_EQ(*ReadFile(Place(7) + "/kernel.ptx"), "kernel \"7\"\n");
  EXPECT_EQ(*ReadFile(Place(9) + "/kernel.cpp"), "kernel \"9\"\n");
  const auto summary = Import();
  ASSERT_TRUE(summary.ok()) << summary.status().ToString();
  EXPECT_EQ(summary->imported, 5);
  EXPECT_EQ(summary->rejected, 0);
  for (int i : {0, 1, 2}) {
    CacheRecord expected = WinnerWithSource(i);
    expected.variants[0].binary = "built here";
    const auto record = to_->Get(expected.key, kTestArch);
    ASSERT_NE(record, nullptr);
    std::string* const candidate = &expected.variants[0].candidate;
    EXPECT_EQ(*ParseJson(record->variants[0].candidate), *ParseJson(*candidate));
    *candidate = record->variants[0].candidate;
    EXPECT_EQ(record->Encode(), expected.Encode());
  }
}

TEST_F(SourcePack, EachVariantHasItsSource) {
  CacheRecord record = WinnerWithSource(7);
  record.variants.push_back(WinnerWithSource(6, "ptx").variants[0]);
  record.variants[0].contract = {{"s0", {{"min", 1}, {"max", 2}, {"multiple", 1}}}};
  ASSERT_TRUE(from_->Put(record).ok());
  Write();
  EXPECT_TRUE(PathExists(Place(7) + "/kernel.cu"));
  EXPECT_TRUE(PathExists(Place(7) + "/kernel-1.ptx"));
  ASSERT_TRUE(Import().ok());
  const auto found = to_->Get(record.key, kTestArch);
  ASSERT_EQ(found->variants.size(), 2u);
  EXPECT_EQ(found->variants[0].contract, record.variants[0].contract);
  EXPECT_EQ(found->variants[1].timing, record.variants[1].timing);
  record.variants.pop_back();
  ASSERT_TRUE(from_->Put(record, true).ok());
  Write();
  EXPECT_FALSE(PathExists(Place(7) + "/kernel-1.ptx"));
}

TEST_F(SourcePack, IncludesAgentsRounds) {
  const CacheRecord record = WinnerWithSource(1);
  const Json round = {{"session", "s"}, {"id", 0}, {"ns", 5.0}, {"advice", {{"issue", "slow"}}}};
  Json whole = round;
  whole["source"] = "a kernel";
  whole["profile"] = {{"metrics", Json::object()}};
  Json cut = whole;
  cut["evaluated"] = false;
  Json first = whole;  // before it was refused in a second run
  first["ns"] = 4.0;
  ASSERT_TRUE(
      from_->AddLineage(record.key, record.arch, {{{"author", "generator"}}, cut, first, whole})
          .ok());
  ASSERT_EQ(Write().exported, 3);
  EXPECT_EQ(*ParseJson(*ReadFile(Place(1) + "/lineage.json")), Json::array({round}));
  EXPECT_FALSE(PathExists(Place(2) + "/lineage.json"));
  EXPECT_EQ(Import()->imported, 3);
}

TEST_F(SourcePack, OneArchitectureAtATime) {
  CacheRecord other = WinnerWithSource(1);
  other.arch = "cuda:sm_80";
  ASSERT_TRUE(from_->Put(other).ok());
  const auto both = WriteSourcePack(*from_, pack_, "");
  ASSERT_EQ(both.status().code(), StatusCode::kInvalidArgument);
  for (const char* part : {kTestArch, "cuda:sm_80", "--arch"}) {
    EXPECT_NE(both.status().message().find(part), std::string::npos) << both.status().message();
  }
  EXPECT_FALSE(PathExists(pack_));
  EXPECT_EQ(Write("cuda:sm_80").exported, 1);
  EXPECT_EQ(Write(kTestArch).exported, 3);
}

TEST_F(SourcePack, NegativeEntriesDoNotCountAsAnArch) {
  CacheRecord negative = TestNegative(9);
  negative.arch = "cuda:sm_80";
  ASSERT_TRUE(from_->Put(negative).ok());
  EXPECT_EQ(Write().exported, 3);
}

TEST_F(SourcePack, EarlierWinnersFilesAreRemoved) {
  const CacheRecord record = WinnerWithSource(1);
  ASSERT_TRUE(from_->AddLineage(record.key, record.arch, {{{"session", "s"}}}).ok());
  ASSERT_EQ(Write().exported, 3);
  ASSERT_TRUE(PathExists(Place(1) + "/lineage.json"));
  ASSERT_TRUE(WriteFileAtomic(Place(1) + "/notes.txt", "a person's").ok());
  ASSERT_TRUE(from_->Delete(record.key, record.arch).ok());
  ASSERT_TRUE(from_->Put(WinnerWithSource(1, "ptx")).ok());
  ASSERT_EQ(Write().exported, 3);
  EXPECT_TRUE(PathExists(Place(1) + "/kernel.ptx"));
  for (const char* gone : {"/kernel.cu", "/lineage.json"}) {
    EXPECT_FALSE(PathExists(Place(1) + gone)) << gone;
  }
  EXPECT_TRUE(PathExists(Place(1) + "/notes.txt"));
  EXPECT_TRUE(PathExists(Place(2) + "/kernel.cu"));
}

TEST_F(SourcePack, InvalidRecordsAreSkipped) {
  for (const Json& nodes : {Json{{{"op", 5}}}, Json{{"op", "x"}}, Json(7), Json{nullptr, "x"}}) {
    CacheRecord record = WinnerWithSource(1);
    Json signature = SignatureOf(record);
    signature["nodes"] = nodes;
    SetSignature(&record, signature);
    ASSERT_TRUE(from_->Put(record).ok());
  }
  const CacheRecord record = WinnerWithSource(1);
  const Json odd = {{"session", 5}, {"evaluated", "no"}, {"author", Json::array()}};
  ASSERT_TRUE(from_->AddLineage(record.key, record.arch, {Json(5), odd}).ok());
  CacheRecord unwritable = WinnerWithSource(11);
  for (const char* candidate : {"no JSON", "5", R"({"language":1,"code":""})", "{}"}) {
    unwritable.variants[0].candidate = candidate;
    ASSERT_TRUE(from_->Put(unwritable, true).ok());
    const PackSummary summary = Write();
    EXPECT_EQ(summary.exported, 7) << candidate;
    EXPECT_EQ(summary.rejected, 1) << candidate;
    ASSERT_EQ(summary.problems.size(), 1u);
    EXPECT_TRUE(summary.problems[0].starts_with("softmax-mul-")) << summary.problems[0];
    EXPECT_FALSE(PathExists(Place(11)));
  }
  EXPECT_EQ(*ParseJson(*ReadFile(Place(1) + "/lineage.json")), Json::array({odd}));
}

TEST_F(SourcePack, ChangedWinnersAreReported) {
  ASSERT_EQ(Write().exported, 3);
  Json record = *ParseJson(*ReadFile(Place(0) + "/record.json"));
  const auto problem_with = [&](const char* field, const Json& value) {
    Json bad = record;
    if (value.is_discarded()) {
      bad.erase(field);
    } else {
      bad[field] = value;
    }
    EXPECT_TRUE(WriteFileAtomic(Place(0) + "/record.json", bad.dump()).ok());
    auto read = ReadSourcePack(pack_);
    EXPECT_EQ(read->size(), 3u);
    int failed = 0;
    std::string message;
    for (const auto& one : *read) {
      failed += !one.ok();
      if (!one.ok()) message = one.status().ToString();
    }
    EXPECT_EQ(failed, 1) << field;
    EXPECT_NE(message.find("softmax-mul-"), std::string::npos) << message;
    return message;
  };
  const Json missing(Json::value_t::discarded);
  for (const char* field : {"format", "key", "arch", "variants", "signature"}) {
    problem_with(field, missing);
  }
  EXPECT_NE(problem_with("format", 3).find("newer"), std::string::npos);
  EXPECT_NE(problem_with("format", 1).find("unknown format 1"), std::string::npos);
  EXPECT_NE(problem_with("format", -1).find("unknown format -1"), std::string::npos);
  EXPECT_NE(problem_with("signature", {{"format", 1}}).find("key"), std::string::npos);
  EXPECT_NE(problem_with("arch", "../x").find("arch"), std::string::npos);
  const auto problem_with_variant = [&](const char* field, const Json& value) {
    Json variants = record["variants"];
    variants[0][field] = value;
    return problem_with("variants", variants);
  };
  EXPECT_NE(problem_with_variant("timing", {{"speedup", "x"}}).find("timing.speedup"),
            std::string::npos);
  EXPECT_NE(problem_with_variant("contract", {1}).find("contract"), std::string::npos);
  EXPECT_NE(problem_with("variants", Json::array()).find("no kernel"), std::string::npos);
  EXPECT_NE(problem_with("provenance", {"x"}).find("provenance"), std::string::npos);
  const Json elsewhere = {{"language", "cuda"}, {"code", {{"file", "../../secret"}}}};
  EXPECT_NE(problem_with_variant("candidate", elsewhere).find("kernel.cu"), std::string::npos);
  EXPECT_TRUE(WriteFileAtomic(Place(0) + "/record.json", "no json").ok());
  const auto summary = Import();
  EXPECT_EQ(summary->imported, 2);
  EXPECT_EQ(summary->rejected, 1);
  ASSERT_EQ(summary->problems.size(), 1u);
  EXPECT_TRUE(summary->problems[0].starts_with("softmax-mul-")) << summary->problems[0];
}

TEST_F(SourcePack, MissingFolderIsNotFound) {
  EXPECT_EQ(ReadSourcePack(folder_.path() + "/none").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ReadSourcePack(folder_.path()).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ImportPack(*to_, folder_.path()).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace cudaforge
