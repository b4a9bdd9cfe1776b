#include "forge/knowledge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "forge/embedded.h"

namespace cudaforge {
namespace {

std::vector<std::string> Ids(const std::vector<const Document*>& documents) {
  std::vector<std::string> ids;
  for (const Document* document : documents) ids.push_back(document->id);
  return ids;
}

bool Includes(const std::vector<std::string>& ids, const std::string& id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

size_t Bytes(const std::vector<const Document*>& documents) {
  size_t bytes = 0;
  for (const Document* document : documents) bytes += document->text.size();
  return bytes;
}

constexpr size_t kAll = size_t{1} << 20;

TEST(Knowledge, DocumentsAreWholeAndShort) {
  ASSERT_GE(AllDocuments().size(), 20u);
  for (const Document& document : AllDocuments()) {
    EXPECT_TRUE(document.text.starts_with("## ")) << document.id;
    EXPECT_TRUE(document.text.ends_with('\n')) << document.id;
    const auto lines = std::count(document.text.begin(), document.text.end(), '\n');
    const bool contract = document.id.starts_with("contract/");
    EXPECT_GE(lines, 15) << document.id;
    EXPECT_LE(lines, contract ? 180 : 60) << document.id;
  }
}

// A misspelt tag would hide its document.
TEST(Knowledge, TagsAreKnownWords) {
  const std::set<std::string> kinds = {"softmax", "norm",   "scan",        "reduction", "pooling",
                                       "loss",    "matmul", "convolution", "attention", "other"};
  for (const Document& document : AllDocuments()) {
    for (const std::string& word : document.languages) {
      EXPECT_TRUE(word == "cuda" || word == "cpu" || word == "triton")
          << document.id << ": " << word;
    }
    for (const std::string& word : document.kinds) {
      EXPECT_TRUE(kinds.contains(word)) << document.id << ": " << word;
    }
    for (const std::string& word : document.limiters) {
      EXPECT_TRUE(word == "memory" || word == "compute" || word == "latency")
          << document.id << ": " << word;
    }
    for (const std::string& word : document.archs) {
      EXPECT_TRUE(word.starts_with("sm_") || word == "x86-64") << document.id << ": " << word;
    }
  }
}

TEST(Knowledge, EveryEmbeddedDocumentCanBeFound) {
  size_t count = 0;
  for (const EmbeddedText& embedded : EmbeddedTexts()) {
    if (!embedded.path.starts_with("knowledge/")) continue;
    ++count;
    std::string_view id = embedded.path.substr(10);
    id.remove_suffix(3);
    EXPECT_NE(FindDocument(id), nullptr) << id;
  }
  EXPECT_EQ(count, AllDocuments().size());
  EXPECT_EQ(FindDocument("guidance/nothing"), nullptr);
}

TEST(Knowledge, ContractsComeFirstAndAlways) {
  for (const std::string language : {"cuda", "cpu", "triton"}) {
    const std::vector<std::string> wanted = {"contract/" + language, "contract/verification"};
    EXPECT_EQ(Ids(Retrieve({.language = language}, 0)), wanted);
    auto ids = Ids(Retrieve({.language = language, .region_kind = "softmax"}, kAll));
    ASSERT_GT(ids.size(), 2u);
    ids.resize(2);
    EXPECT_EQ(ids, wanted);
  }
}

TEST(Knowledge, QueryMatchesTags) {
  const auto ids = Ids(Retrieve(
      {.language = "cuda", .region_kind = "softmax", .arch = "cuda:sm_90a", .limiter = "memory"},
      kAll));
  for (const char* id : {"guidance/softmax", "guidance/reductions", "guidance/memory_bound",
                         "guidance/vector_access", "hardware/sm_90"}) {
    EXPECT_TRUE(Includes(ids, id)) << id;
  }
  for (const char* id : {"guidance/attention", "guidance/compute_bound", "guidance/cpu_loops",
                         "hardware/sm_100", "hardware/x86_64", "contract/cpu"}) {
    EXPECT_FALSE(Includes(ids, id)) << id;
  }
  // Order: kind, limiter, architecture, then general documents.
  const auto place = [&](const char* id) { return std::find(ids.begin(), ids.end(), id); };
  EXPECT_LT(place("guidance/softmax"), place("guidance/memory_bound"));
  EXPECT_LT(place("guidance/memory_bound"), place("hardware/sm_90"));
  EXPECT_LT(place("hardware/sm_90"), place("guidance/vector_access"));
}

TEST(Knowledge, NoLimiterBeforeAMeasurement) {
  const auto ids =
      Ids(Retrieve({.language = "cuda", .region_kind = "matmul", .arch = "cuda:sm_80"}, kAll));
  EXPECT_FALSE(Includes(ids, "guidance/memory_bound"));
  EXPECT_TRUE(Includes(ids, "guidance/float32_products_on_tensor_cores"));
}

TEST(Knowledge, EveryArchitectureFindsItsOwn) {
  const auto hardware = [](const std::string& language, const std::string& arch) {
    std::string found;
    for (const std::string& id : Ids(Retrieve({.language = language, .arch = arch}, kAll))) {
      if (id.starts_with("hardware/")) found += id.substr(9);
    }
    return found;
  };
  EXPECT_EQ(hardware("cuda", "cuda:sm_80"), "sm_80");
  EXPECT_EQ(hardware("cuda", "cuda:sm_86"), "sm_80");
  EXPECT_EQ(hardware("cuda", "cuda:sm_89"), "sm_89");
  EXPECT_EQ(hardware("cuda", "cuda:sm_90a"), "sm_90");
  EXPECT_EQ(hardware("cuda", "cuda:sm_100a"), "sm_100");
  EXPECT_EQ(hardware("cuda", "cuda:sm_103a"), "sm_100");
  EXPECT_EQ(hardware("cuda", "cuda:sm_120"), "sm_120");
  EXPECT_EQ(hardware("cuda", "cuda:sm_75"), "");
  EXPECT_EQ(hardware("cpu", "cpu:x86-64-v4+1f0c93ab"), "x86_64");
  EXPECT_EQ(hardware("cpu", "cpu:aarch64"), "");
  EXPECT_EQ(hardware("cpu", ""), "");
}

TEST(Knowledge, RespectsMaxBytes) {
  const KnowledgeQuery query = {.language = "cuda",
                                .region_kind = "convolution",
                                .arch = "cuda:sm_90a",
                                .limiter = "compute"};
  const size_t contracts = Bytes(Retrieve(query, 0));
  const size_t everything = Bytes(Retrieve(query, kAll));
  size_t last = contracts;
  for (size_t limit = contracts; limit <= everything + 500; limit += 500) {
    std::vector<const Document*> left_out = {nullptr};  // is replaced
    const auto found = Retrieve(query, limit, &left_out);
    EXPECT_LE(Bytes(found), limit);
    EXPECT_EQ(Ids(found), Ids(Retrieve(query, limit)));
    last = Bytes(found);
    std::vector<const Document*> rest = Retrieve(query, kAll);
    std::erase_if(rest, [&](const Document* document) {
      return std::find(found.begin(), found.end(), document) != found.end();
    });
    ASSERT_EQ(Ids(left_out), Ids(rest));
  }
  EXPECT_GT(everything, contracts);
  EXPECT_EQ(last, everything);
}

}  // namespace
}  // namespace cudaforge
