// Random mutations of replies, from a fixed seed: parsing must return, and results must satisfy the
// contract.
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "base/text.h"
#include "forge/agent/coder.h"
#include "forge/agent/judge.h"
#include "llm/reply_parser.h"

// libFuzzer's entry: one reply. CF_CHECK throws, and aborts under a fuzzer.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cudaforge;  // NOLINT(google-build-using-namespace)
  const std::string_view reply(reinterpret_cast<const char*>(data), size);
  for (const Language language : {Language::kCpu, Language::kCuda}) {
    const Result<Candidate> candidate = ParseCoderReply(reply, language, "agent:fuzz");
    if (!candidate.ok()) {
      CF_CHECK(candidate.status().code() == StatusCode::kInvalidArgument);
      continue;
    }
    const std::string& code = candidate->source.code;
    CF_CHECK(IsUtf8(code) && !code.empty() && code.size() <= reply.size());
    CF_CHECK(code.find('\0') == std::string::npos);
    CF_CHECK(candidate->source.language == language && candidate->author == "agent:fuzz");
  }
  const Result<Advice> advice = ParseJudgeReply(reply);
  if (advice.ok()) {
    CF_CHECK(!advice->issue.empty() && !advice->plan.empty());
    CF_CHECK(IsUtf8(advice->issue) && IsUtf8(advice->plan));
  } else {
    CF_CHECK(advice.status().code() == StatusCode::kInvalidArgument);
  }
  const Result<Json> object = ParseJsonReply(reply);
  if (object.ok()) {
    CF_CHECK(object->is_object());
    // Strict parsing accepts the result unchanged.
    const Result<Json> again = ParseJson(CanonicalJson(*object));
    CF_CHECK(again.ok() && *again == *object);
  }
  return 0;
}

namespace cudaforge {
namespace {

constexpr std::string_view kFuzzCorpus[] = {
    "Here:\n```json\n{\"launches\": [{\"kernel\": \"f\", \"args\": [{\"in\": 0}, {\"out\": 0}], "
    "\"grid\": [\"1\", 1, 1], \"block\": [256, 1, 1]}]}\n```\n"
    "```cuda\n__global__ void f(float* x) { x[0] = 1.0f; }\n```\nDone.\n",
    "```json\n{\"launches\": [{\"kernel\": \"f\", \"args\": [{\"int\": 7}], \"range\": "
    "\"in0.size0\",}], \"scratch_bytes\": [64]}\n```\n~~~~ cpp\nint x;\r\n~~~~\n",
    "```json\n{\"issue\": \"spills\", \"plan\": \"a\", \"n\": [null, {\"b\": -1.5e3}],}\n```",
    "\xef\xbb\xbf{\"issue\": \"caf\xc3\xa9 \\u00e9 \\ud83d\\ude00\", \"plan\": \"b\", "
    "\"c\": [[[]]]}",
    "text { not json } then {\"a\": \"line\nbreak\", \"a2\": true} and more"};

constexpr std::string_view kFuzzPieces[] = {
    "```", "~~~",  "\n",        "{\"",  "\"}",          "{",    "}",    "[",   "]",
    "\"",  "\\",   ",",         ":",    "\xef\xbb\xbf", "\xff", "\xc3", "NaN", "1e999",
    "\\u", "\r\n", "```json\n", "null", "   ",          "-",    "\t"};

// `text` with a few random changes.
std::string Mutated(std::string text, std::mt19937_64& random) {
  const auto below = [&random](size_t n) { return static_cast<size_t>(random() % n); };
  for (size_t changes = 1 + below(6); changes > 0; --changes) {
    const size_t at = below(text.size() + 1);
    switch (below(6)) {
      case 0:
        text.insert(at, kFuzzPieces[below(std::size(kFuzzPieces))]);
        break;
      case 1:
        text.erase(at, below(12));
        break;
      case 2:
        if (at < text.size()) text[at] = static_cast<char>(below(256));
        break;
      case 3:
        text.insert(at, text.substr(below(text.size() + 1), below(40)));
        break;
      case 4:
        text.resize(at);
        break;
      default:
        text += kFuzzCorpus[below(std::size(kFuzzCorpus))];
    }
  }
  return text;
}

TEST(AgentReplyFuzz, MutatedReplies) {
  std::mt19937_64 random(1);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
  // All parsers accept their part of the corpus.
  ASSERT_TRUE(ParseCoderReply(kFuzzCorpus[0], Language::kCuda, "a").ok());
  ASSERT_TRUE(ParseCoderReply(kFuzzCorpus[1], Language::kCpu, "a").ok());
  ASSERT_TRUE(ParseJudgeReply(kFuzzCorpus[2]).ok() && ParseJudgeReply(kFuzzCorpus[3]).ok());
  std::string text(kFuzzCorpus[0]);
  for (int i = 0; i < 20'000 && std::chrono::steady_clock::now() < end; ++i) {
    // Sometimes continues from the last one, so that changes accumulate.
    const bool fresh = random() % 4 != 0 || text.size() > 5000;
    text =
        Mutated(fresh ? std::string(kFuzzCorpus[random() % std::size(kFuzzCorpus)]) : text, random);
    ASSERT_NO_THROW(
        LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()), text.size()))
        << text;
  }
}

}  // namespace
}  // namespace cudaforge
