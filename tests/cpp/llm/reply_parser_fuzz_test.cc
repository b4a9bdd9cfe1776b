// Replies mutated at random, from a fixed seed: whatever they are, the parser returns, and what it
// returns holds what its contract says.
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "llm/reply_parser.h"
#include "llm/text.h"

// libFuzzer's entry: one reply. CF_CHECK throws, and aborts under a fuzzer.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cudaforge;  // NOLINT(google-build-using-namespace)
  const std::string_view reply(reinterpret_cast<const char*>(data), size);
  for (const bool take_last : {false, true}) {
    const Result<CodeBlock> block = ParseCodeBlock(reply, {.take_last = take_last});
    if (!block.ok()) continue;
    CF_CHECK(IsUtf8(block->code));
    CF_CHECK(block->code.find('\0') == std::string::npos);
    CF_CHECK(block->code.size() <= reply.size());
    CF_CHECK(take_last || !block->one_of_several);
  }
  const Result<JsonReply> object = ParseJsonReply(reply);
  if (object.ok()) {
    CF_CHECK(object->value.is_object());
    // Strict parsing takes what was accepted, and gives it back.
    const Result<Json> again = ParseJson(CanonicalJson(object->value));
    CF_CHECK(again.ok() && *again == object->value);
  }
  return 0;
}

namespace cudaforge {
namespace {

constexpr std::string_view kFuzzCorpus[] = {
    "Here:\n```cuda\n__global__ void f(float* x) { x[0] = 1.0f; }\n```\nDone.\n",
    "```json\n{\"issue\": \"spills\", \"plan\": [\"a\", {\"b\": -1.5e3}], \"n\": null,}\n```",
    "\xef\xbb\xbf{\"a\": \"caf\xc3\xa9 \\u00e9 \\ud83d\\ude00\", \"b\": {\"c\": [[[]]]}}",
    "~~~~ cpp\nint x;\n~~~~\n```\nint y;\n",
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

TEST(ReplyParserFuzzTest, MutatedReplies) {
  std::mt19937_64 random(1);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
  std::string text(kFuzzCorpus[0]);
  for (int i = 0; i < 20'000 && std::chrono::steady_clock::now() < end; ++i) {
    // Sometimes on from the last one, so that changes add up.
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
