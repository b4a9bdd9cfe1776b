#include "cache/record.h"

#include <gtest/gtest.h>

#include <ctime>
#include <initializer_list>
#include <utility>

#include "tests/cpp/cache/test_records.h"

namespace cudaforge {
namespace {

using Text = std::string CacheRecord::*;

TEST(Record, RoundTrip) {
  CacheRecord beside = TestWinner(3);
  beside.doubtful = 1700000000;
  CacheRecord two = TestWinner(4);
  two.variants.push_back(TestWinner(5, 1.1).variants[0]);
  two.variants[1].contract = {{"s0", {{"min", 1}, {"max", 64}, {"multiple", 8}}}};
  for (const CacheRecord& record : {TestWinner(1), TestNegative(2), beside, two}) {
    auto back = CacheRecord::Decode(record.Encode());
    ASSERT_TRUE(back.ok()) << back.status().ToString();
    EXPECT_EQ(back->key, record.key);
    EXPECT_EQ(back->arch, record.arch);
    EXPECT_EQ(back->signature, record.signature);
    ASSERT_EQ(back->variants.size(), record.variants.size());
    for (size_t i = 0; i < record.variants.size(); ++i) {
      EXPECT_EQ(back->variants[i].candidate, record.variants[i].candidate);
      EXPECT_EQ(back->variants[i].binary, record.variants[i].binary);
      EXPECT_EQ(back->variants[i].verification, record.variants[i].verification);
      EXPECT_EQ(back->variants[i].timing, record.variants[i].timing);
      EXPECT_EQ(back->variants[i].contract, record.variants[i].contract);
    }
    EXPECT_EQ(back->verification, record.verification);
    EXPECT_EQ(back->timing, record.timing);
    EXPECT_EQ(back->provenance, record.provenance);
    EXPECT_EQ(back->doubtful, record.doubtful);
    EXPECT_EQ(back->versions, record.versions);
    EXPECT_EQ(back->checksum,
              Hex(std::string_view(record.Encode()).substr(record.Encode().size() - 16)));
    EXPECT_EQ(back->Encode(), record.Encode());
  }
}

TEST(Record, FirstVariantWithAMatchingContractIsServed) {
  CacheRecord record = TestWinner(1);
  record.variants.push_back(TestWinner(2).variants[0]);
  record.variants[0].contract = {{"s0", {{"min", 8}, {"max", 64}, {"multiple", 8}}}};
  const Variant *const first = &record.variants[0], *const second = &record.variants[1];
  EXPECT_EQ(record.For({{"s0", 8}}), first);
  EXPECT_EQ(record.For({{"s0", 64}, {"s1", 3}}), first);
  for (int64_t size : {0, 7, 12, 72}) EXPECT_EQ(record.For({{"s0", size}}), second) << size;
  EXPECT_EQ(record.For(), second);
  record.variants.pop_back();
  EXPECT_EQ(record.For(), nullptr);
  EXPECT_FALSE(record.Serves().compiled);
  for (const char* odd : {"1", R"({"s0":1})", R"({"s0":{"min":2,"max":1,"multiple":1}})",
                          R"({"s0":{"min":1,"max":2,"multiple":0}})"}) {
    record.variants[0].contract = ParseJson(odd).value();
    EXPECT_EQ(record.Validate().code(), StatusCode::kInvalidArgument) << odd;
    EXPECT_EQ(CacheRecord::Decode(record.Encode()).status().code(), StatusCode::kCorruption) << odd;
  }
}

TEST(Record, EveryBitFlipIsDetected) {
  const std::string good = TestWinner(1, 1.5, 100).Encode();
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
    auto decoded = CacheRecord::Decode(bad);
    ASSERT_FALSE(decoded.ok()) << "byte " << i;
    EXPECT_EQ(decoded.status().code(), StatusCode::kCorruption);
  }
}

TEST(Record, EveryTruncationIsDetected) {
  const std::string good = TestWinner(1, 1.5, 100).Encode();
  for (size_t n = 0; n < good.size(); ++n) {
    EXPECT_FALSE(CacheRecord::Decode(std::string_view(good).substr(0, n)).ok()) << n;
  }
  EXPECT_FALSE(CacheRecord::Decode(good + "x").ok());
}

TEST(Record, NewerFormatIsUnsupported) {
  std::string bytes = TestWinner(1).Encode();
  bytes[4] = CacheRecord::kFormat + 1;
  EXPECT_EQ(CacheRecord::Decode(Sealed(bytes)).status().code(), StatusCode::kUnsupported);
  for (char older : {0, 1, 2, 3}) {
    bytes[4] = older;
    EXPECT_EQ(CacheRecord::Decode(Sealed(bytes)).status().code(), StatusCode::kCorruption);
    EXPECT_TRUE(CacheRecord::IsEarlier(Sealed(bytes)));
  }
}

TEST(Record, InconsistentLengthsAreCorruption) {
  const std::string good = TestWinner(1).Encode();
  const size_t list = good.find("\"bytes\":[") + 9;
  for (size_t at : {size_t{8}, size_t{11}, list, good.find(']', list) - 1}) {
    std::string bytes = good;
    bytes[at] = at < list ? '\xFF' : '9';
    EXPECT_EQ(CacheRecord::Decode(Sealed(bytes)).status().code(), StatusCode::kCorruption) << at;
  }
}

TEST(Record, KeyMustBeTheSignatures) {
  CacheRecord record = TestWinner(1);
  record.signature = TestWinner(2).signature;
  EXPECT_EQ(record.Validate().code(), StatusCode::kCorruption);
  EXPECT_EQ(CacheRecord::Decode(record.Encode()).status().code(), StatusCode::kCorruption);
}

TEST(Record, VariantNeedsCandidateAndBinary) {
  EXPECT_EQ(TestWinner(1).kind(), "winner");
  EXPECT_EQ(TestNegative(1).kind(), "negative");
  for (const auto part : {&Variant::candidate, &Variant::binary}) {
    CacheRecord record = TestWinner(1);
    (record.variants[0].*part).clear();
    EXPECT_FALSE(CacheRecord::Decode(record.Encode()).ok());
  }
  CacheRecord arch = TestWinner(1);
  arch.arch = "cpu/../x";
  EXPECT_FALSE(CacheRecord::Decode(arch.Encode()).ok());
}

// The record decodes, but its evidence does not, and it cannot be stored.
void ExpectOdd(const CacheRecord& record, std::string_view said) {
  const Status status = record.Validate();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << said;
  EXPECT_NE(status.message().find(said), std::string::npos) << status.message();
  const auto read = CacheRecord::Decode(record.Encode());
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_FALSE(read->Fields().ok()) << said;
  EXPECT_FALSE(MakeMemoryKernelStore()->Put(*read).ok()) << said;
}

TEST(Record, InvalidTextsAreDamage) {
  for (const char* text : {"{", "[1]", "\xff"}) {
    for (const auto& [name, member] : std::initializer_list<std::pair<const char*, Text>>{
             {"verification", &CacheRecord::verification},
             {"timing", &CacheRecord::timing},
             {"provenance", &CacheRecord::provenance}}) {
      CacheRecord record = TestWinner(1);
      record.*member = text;
      ExpectOdd(record, name);
    }
  }
  for (const char* text : {"", "null", "[]", "{"}) {
    CacheRecord record = TestWinner(1);
    record.signature = text;
    record.key = Sha256Hex(text);
    EXPECT_EQ(record.Validate().code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(Record, FieldsRoundTrip) {
  const CacheRecord record = TestWinner(1);
  CacheRecord copy;
  ASSERT_TRUE(copy.SetFields(record.Fields().value()).ok());
  EXPECT_EQ(copy.signature, record.signature);
  EXPECT_EQ(copy.verification, record.variants[0].verification);
  EXPECT_EQ(copy.timing, record.race());
  EXPECT_EQ(copy.provenance, record.provenance);
  EXPECT_EQ(copy.versions, record.versions);
  EXPECT_FALSE(copy.SetFields({{"verification", nullptr}}).ok()) << "there is no signature";
}

TEST(Record, InvalidFieldsAreDamage) {
  const struct {
    Text member;
    const char* value;
    const char* said;
  } odd[] = {
      {&CacheRecord::verification, R"({"cases":"normal"})", "verification.cases"},
      {&CacheRecord::verification, R"({"cases":[1]})", "verification.cases"},
      {&CacheRecord::timing, "1", "timing"},
      {&CacheRecord::timing, R"({"speedup":"x"})", "timing.speedup"},
      {&CacheRecord::timing, R"({"speedup":[1,2]})", "timing.speedup"},
      {&CacheRecord::timing, R"({"speedup":[1,2,3,4]})", "timing.speedup"},
      {&CacheRecord::timing, R"({"speedup":[null,"a",{}]})", "timing.speedup"},
      {&CacheRecord::timing, R"({"speedup":[1,2,true]})", "timing.speedup"},
      {&CacheRecord::timing, R"({"speedup":[1,2,1000000001]})", "timing.speedup"},
      {&CacheRecord::timing, R"({"speedup":[-0.5,1,2]})", "timing.speedup"},
      {&CacheRecord::timing, R"({"speedup_over_aten":1.5})", "timing.speedup_over_aten"},
      {&CacheRecord::timing, R"({"aten_us":"1"})", "timing.aten_us"},
      {&CacheRecord::timing, R"({"aten_us":-1})", "timing.aten_us"},
      {&CacheRecord::timing, R"({"winner_us":1e300})", "timing.winner_us"},
      {&CacheRecord::timing, R"({"inductor_us":1000000000001})", "timing.inductor_us"},
      {&CacheRecord::timing, R"({"inductor_us":[1]})", "timing.inductor_us"},
      {&CacheRecord::timing, R"({"winner_us":{"float":"nan"}})", "timing.winner_us"},
      {&CacheRecord::timing, R"({"best_rival":["aten"]})", "timing.best_rival"},
      {&CacheRecord::timing, R"({"speedup_over_inductor":[1]})", "timing.speedup_over_inductor"},
      {&CacheRecord::timing, R"({"within":{"key":1}})", "timing.within"},
      {&CacheRecord::timing, R"({"within":"x"})", "timing.within"},
      {&CacheRecord::timing, R"({"within":{"key":"k","aten_us":-1}})", "timing.within"},
      {&CacheRecord::provenance, R"(["x"])", "provenance"},
      {&CacheRecord::provenance, R"({"author":["x"]})", "provenance.author"},
      {&CacheRecord::provenance, R"({"reason":1})", "provenance.reason"},
      {&CacheRecord::provenance, R"({"created":1e300})", "provenance.created"},
      {&CacheRecord::provenance, R"({"created":100000000001})", "provenance.created"},
      {&CacheRecord::provenance, R"({"created":18446744073709551615})", "provenance.created"},
      {&CacheRecord::provenance, R"({"created":-1})", "provenance.created"},
      {&CacheRecord::provenance, R"({"created":"now"})", "provenance.created"},
      {&CacheRecord::provenance, R"({"budget_s":"30"})", "provenance.budget_s"},
      {&CacheRecord::provenance, R"({"candidates_tried":"\u001b"})", "provenance.candidates_tried"},
  };
  for (const auto& [member, value, said] : odd) {
    CacheRecord record = TestNegative(1);
    record.*member = value;
    ExpectOdd(record, said);
    if (member != &CacheRecord::timing) continue;
    record = TestWinner(1);
    record.variants[0].timing = value;
    ExpectOdd(record, said);
  }
  CacheRecord record = TestWinner(1);
  record.versions = "2.11.0";
  EXPECT_EQ(record.Validate().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(CacheRecord::Decode(record.Encode()).status().code(), StatusCode::kCorruption);
}

TEST(Record, FieldsMayBeAbsentOrNull) {
  for (const char* text :
       {"null", "{}", R"({"new":[1],"within":null,"speedup":null,"aten_us":null,"cases":null,
        "author":null,"reason":null,"created":null,"budget_s":null})",
        R"({"speedup":[0,2.5,1000000000],"rounds":9,"best_rival":"aten","within":{"key":"k"},
        "aten_us":0,"winner_us":1000000000000,"cases":[],
        "created":100000000000,"reason":"none","out_of_time":true,"budget_s":0.5})"}) {
    CacheRecord record = TestWinner(1);
    record.verification = record.variants[0].timing = record.provenance = text;
    record.versions = ParseJson(text).value();
    EXPECT_TRUE(record.Validate().ok()) << record.Validate().message();
    EXPECT_TRUE(CacheRecord::Decode(record.Encode()).ok()) << text;
  }
}

TEST(Record, InvalidUtf8IsReplaced) {
  CacheRecord record = TestWinner(1);
  record.versions["log"] = "\xff\xfe bad";
  EXPECT_TRUE(CacheRecord::Decode(record.Encode()).ok());
  Json fields = record.Fields().value();
  fields["verification"] = {{"log", "\xff\xfe bad"}};
  ASSERT_TRUE(record.SetFields(fields).ok());
  EXPECT_TRUE(record.Validate().ok());
}

TEST(Record, ServedByTiming) {
  const char* const rules[] = {
      // timing, compiled, eager
      R"([{"speedup":[1.04,1.1,1.2]}, true, true])",
      R"([{"speedup":[1.03,1.1,1.2]}, false, false])",
      R"([{"speedup":[1.1,1.1,1.1],"best_rival":"aten","winner_us":2,"aten_us":2}, false, false])",
      R"([{"speedup":[0.9,0.9,0.9],"speedup_over_aten":[1.1,1.2,1.3]}, false, true])",
      R"([{"speedup":[0.9,0.9,0.9],"speedup_over_aten":[1.1,1.2,1.3],"winner_us":2,"aten_us":1},
          false, false])",
      R"([{"speedup":[1.1,1.1,1.1],"within":{"key":"k","speedup":[1.1,1.1,1.1]}}, true, true])",
      R"([{"speedup":[1.1,1.1,1.1],"within":{"key":"k","speedup":[1,1.1,1.1]}}, false, true])",
      R"([{}, false, false])"};
  for (const char* text : rules) {
    const Json rule = ParseJson(text).value();
    CacheRecord record = TestWinner(1);
    record.variants[0].timing = CanonicalJson(rule[0]);
    EXPECT_EQ(record.Serves().compiled, rule[1].get<bool>()) << text;
    EXPECT_EQ(record.Serves().eager, rule[2].get<bool>()) << text;
    EXPECT_FALSE(ServedBy(rule[0], false).eager) << "no eager call is all of the region";
    record.variants.clear();
    EXPECT_FALSE(record.Serves().compiled || record.Serves().eager);
  }
}

TEST(Record, DoubtIsRecentForADay) {
  CacheRecord record = TestWinner(1);
  EXPECT_FALSE(record.RecentlyDoubtful());
  record.doubtful = static_cast<int64_t>(std::time(nullptr)) - 60;
  EXPECT_TRUE(record.RecentlyDoubtful());
  record.doubtful -= 24 * 60 * 60;
  EXPECT_FALSE(record.RecentlyDoubtful());
}

TEST(Record, SpeedupLow) {
  EXPECT_EQ(TestWinner(1, 1.25).SpeedupLow(), 1.25);
  CacheRecord record = TestWinner(1);
  for (const char* timing : {"", "{", "null", "{}", R"({"speedup":[]})", R"({"speedup":["fast"]})",
                             R"({"speedup":3})"}) {
    record.variants[0].timing = timing;
    EXPECT_EQ(record.SpeedupLow(), 0) << timing;
  }
}

TEST(CacheRecord, IsJudgedAlikeByTheSameVersions) {
  const Json full = {{"torch", "2.11.0"}, {"verifier", 1}, {"device", "H"}, {"cublaslt", "130100"}};
  for (const char* field : {"torch", "verifier", "device", "cublaslt"}) {
    Json other = full;
    EXPECT_TRUE(JudgedAlike(full, other));
    other[field] = "other";
    EXPECT_FALSE(JudgedAlike(full, other)) << field;
    other.erase(field);
    const bool optional = field == std::string("device") || field == std::string("cublaslt");
    EXPECT_EQ(JudgedAlike(full, other), optional) << field;
    EXPECT_EQ(JudgedAlike(other, full), optional) << field;
  }
}

}  // namespace
}  // namespace cudaforge
