#include "forge/agent/coder.h"

#include <utility>
#include <vector>

#include "base/text.h"
#include "forge/agent/device_code.h"
#include "llm/fences.h"
#include "llm/reply_parser.h"

namespace cudaforge {
namespace {

constexpr size_t kMaxCoderReply = size_t{1} << 20;
constexpr std::string_view kSourceWords[] = {"cuda", "cu", "cpp", "c++", "cc", "cxx", "c"};

Status BadProposal(const std::string& what) { return Status::InvalidArgument("the reply " + what); }

struct ReplyParts {
  std::vector<std::string_view> plans;
  std::vector<std::string_view> sources;
};

// Sorts the blocks by purpose.
Result<ReplyParts> SortBlocks(std::string_view reply, std::span<const std::string_view> words) {
  ReplyParts parts;
  for (const Fence& fence : FindFences(reply)) {
    const std::string word = FirstWord(fence);
    const bool plan = word == "json" || (word.empty() && BeginsAsObject(fence.body));
    const bool source = !plan && (word.empty() || IsIn(word, words));
    if (!fence.closed) return BadProposal("has a code block that is not closed: was it cut off?");
    if (plan) parts.plans.push_back(fence.body);
    if (source) parts.sources.push_back(fence.body);
  }
  return parts;
}

Status CountOne(size_t count, const std::string& what) {
  if (count == 1) return Status::Ok();
  return BadProposal("has " + (count == 0 ? "no block " : std::to_string(count) + " blocks ") +
                     what + " instead of one");
}

// Converts an integer in place of an expression to its text.
void IntegersAsText(Json* value) {
  if (value->is_number_integer()) *value = value->dump();
  if (!value->is_array()) return;
  for (Json& item : *value) {
    if (item.is_number_integer()) item = item.dump();
  }
}

// Adds the optional fields of a tensor map.
void CompleteMap(Json* map) {
  if (!map->is_object()) return;
  map->emplace("strides", Json::array());
  map->emplace("swizzle", 0);
  for (const char* field : {"sizes", "strides", "box"}) {
    if (map->contains(field)) IntegersAsText(&(*map)[field]);
  }
}

// Replaces CRLF by LF.
std::string WithUnixLines(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r' || i + 1 == text.size() || text[i + 1] != '\n') out += text[i];
  }
  return out;
}

}  // namespace

void CompletePlan(Language language, Json* plan) {
  for (const char* field : {"launches", "scratch_bytes", "constraints"}) {
    plan->emplace(field, Json::array());
  }
  Json& scratch = (*plan)["scratch_bytes"];
  IntegersAsText(&scratch);
  for (Json& buffer : scratch) {
    if (buffer.is_object() && buffer.contains("bytes")) IntegersAsText(&buffer["bytes"]);
  }
  if (plan->contains("tensor_maps") && (*plan)["tensor_maps"].is_array()) {
    for (Json& map : (*plan)["tensor_maps"]) CompleteMap(&map);
  }
  Json& launches = (*plan)["launches"];
  if (!launches.is_array()) return;
  for (Json& launch : launches) {
    if (!launch.is_object()) continue;
    if (language != Language::kCpu) {
      launch.emplace("dynamic_shared_bytes", "0");
    } else {
      launch.emplace("grain", "1");
    }
    for (const char* field :
         {"grid", "block", "cluster", "dynamic_shared_bytes", "range", "grain"}) {
      if (launch.contains(field)) IntegersAsText(&launch[field]);
    }
    if (MemberOrNull(MemberOrNull(launch, "attributes"), "cluster").is_array()) {
      IntegersAsText(&launch["attributes"]["cluster"]);
    }
    if (!launch.contains("args") || !launch["args"].is_array()) continue;
    for (Json& arg : launch["args"]) {
      if (arg.is_object() && arg.contains("int")) IntegersAsText(&arg["int"]);
    }
  }
}

Result<CoderBlocks> ReadCoderBlocks(std::string_view reply,
                                    std::span<const std::string_view> words) {
  if (reply.size() > kMaxCoderReply) {
    return BadProposal("has " + std::to_string(reply.size()) + " bytes, over the limit of " +
                       std::to_string(kMaxCoderReply));
  }
  if (!IsUtf8(reply)) return BadProposal("is not UTF-8");
  if (reply.find('\0') != std::string_view::npos) return BadProposal("has a zero byte in it");
  CF_ASSIGN_OR_RETURN(const ReplyParts parts, SortBlocks(reply, words));
  CF_RETURN_IF_ERROR(CountOne(parts.sources.size(), "of source"));
  CF_RETURN_IF_ERROR(CountOne(parts.plans.size(), "of JSON with the launch plan"));
  Result<Json> plan = ParseJsonReply(parts.plans[0]);
  if (!plan.ok()) return Status::InvalidArgument("launch plan: " + plan.status().message());
  CoderBlocks blocks{*std::move(plan), WithUnixLines(parts.sources[0])};
  if (blocks.source.find_first_not_of(" \t\n") == std::string::npos) {
    return BadProposal("has an empty block of source");
  }
  return blocks;
}

Result<Candidate> ParseCoderReply(std::string_view reply, Language language, std::string author) {
  CF_ASSIGN_OR_RETURN(CoderBlocks blocks, ReadCoderBlocks(reply, kSourceWords));
  Json json = PlanFieldsOf(blocks.plan);
  CompletePlan(language, &json);
  json["language"] = LanguageName(language);
  if (language == Language::kCuda) {
    CF_ASSIGN_OR_RETURN(blocks.source, WithDeviceCode(blocks.source));
  }
  json["code"] = std::move(blocks.source);
  json["author"] = std::move(author);
  json["params"] = Json::object();
  Result<Candidate> candidate = Candidate::FromJson(json);
  if (!candidate.ok()) {
    return Status::InvalidArgument("launch plan: " + Printable(candidate.status().message(), 400));
  }
  return candidate;
}

Result<Proposal> LlmCoder::Propose(const Prompt& prompt, const ReplyLimits& limits, int round) {
  Result<Reply> reply = calls_->Ask(*provider_, AgentRole::kCoder, prompt, limits, round);
  Proposal proposal;
  if (reply.status().code() == StatusCode::kCorruption) {
    proposal.refusal = "the reply could not be read: " + reply.status().message();
    return proposal;
  }
  CF_RETURN_IF_ERROR(reply.status());
  Result<Candidate> candidate = read_(reply->content, author());
  if (candidate.status().code() == StatusCode::kCancelled) return candidate.status();
  proposal.model = reply->model;
  if (candidate.ok()) {
    proposal.candidate = *std::move(candidate);
  } else {
    proposal.refusal = candidate.status().message();
    if (IsTruncated(*reply)) {
      proposal.refusal += " (the reply ended at its limit of " +
                          std::to_string(limits.max_output_tokens) + " tokens)";
    }
  }
  proposal.reply = std::move(reply->content);
  return proposal;
}

}  // namespace cudaforge
