#include "forge/agent/judge.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "forge/agent/agent_prompts.h"
#include "llm/reply_parser.h"

namespace cudaforge {
namespace {

constexpr int64_t kMaxAdviceChars = 600;
constexpr size_t kMaxShownReply = 4096;

int64_t CountChars(std::string_view utf8) {
  return std::count_if(utf8.begin(), utf8.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

Result<std::string> AdviceField(const Json& json, const char* field) {
  const Json& value = MemberOrNull(json, field);
  const std::string name = std::string("\"") + field + "\"";
  if (!value.is_string()) return Status::InvalidArgument("the reply has no string " + name);
  auto text = value.get<std::string>();
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
    return Status::InvalidArgument("the reply's " + name + " is empty");
  }
  if (const int64_t chars = CountChars(text); chars > kMaxAdviceChars) {
    return Status::InvalidArgument("the reply's " + name + " has " + std::to_string(chars) +
                                   " characters, over the limit of " +
                                   std::to_string(kMaxAdviceChars));
  }
  return text;
}

bool HasAdvice(std::string_view object) {
  const Result<Json> json = ParseJsonReply(object);
  return json.ok() && json->contains("issue") && json->contains("plan");
}

}  // namespace

Result<Advice> ParseJudgeReply(std::string_view reply) {
  const Result<Json> json = ParseJsonReply(reply);
  if (!json.ok()) return Status::InvalidArgument(json.status().message());
  const std::vector<std::string_view> objects = ObjectsIn(reply);
  if (const auto count = std::ranges::count_if(objects, HasAdvice); count > 1) {
    return Status::InvalidArgument("the reply has " + std::to_string(count) +
                                   " objects with an issue and a plan; expected one");
  }
  Advice advice;
  CF_ASSIGN_OR_RETURN(advice.issue, AdviceField(*json, "issue"));
  CF_ASSIGN_OR_RETURN(advice.plan, AdviceField(*json, "plan"));
  return advice;
}

LlmJudge::Opinion LlmJudge::Advise(const Prompt& first, int round) {
  Opinion opinion;
  Prompt prompt = first;
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Allowance allowance = calls_->Allow(*provider_, AgentRole::kJudge, prompt);
    if (!allowance.refusal.empty()) {
      opinion.silence = allowance.refusal;
      return opinion;
    }
    opinion.prompts.push_back(prompt);
    const Result<Reply> reply =
        calls_->Ask(*provider_, AgentRole::kJudge, prompt, allowance.limits, round);
    // A reply that violates the service's protocol is treated as malformed JSON.
    const bool arrived = reply.ok() || reply.status().code() == StatusCode::kCorruption;
    if (!arrived) {
      opinion.silence = reply.status().ToString();
      return opinion;
    }
    Result<Advice> advice =
        reply.ok() ? ParseJudgeReply(reply->content) : Result<Advice>(reply.status());
    if (advice.ok()) {
      opinion.advice = *std::move(advice);
      opinion.silence.clear();
      return opinion;
    }
    opinion.silence = advice.status().message();
    const std::string shown = reply.ok() ? Printable(reply->content, kMaxShownReply) : "";
    auto again = JudgeAgain(first, opinion.silence, shown);
    if (!again.ok()) return opinion;
    prompt = *std::move(again);
  }
  return opinion;
}

}  // namespace cudaforge
