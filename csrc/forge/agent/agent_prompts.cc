#include "forge/agent/agent_prompts.h"

#include <utility>

#include "base/sha256.h"
#include "base/text.h"
#include "forge/knowledge.h"
#include "forge/region_text.h"

namespace cudaforge {
namespace {

// One line: what an earlier round tried, and its result.
std::string TriedLine(const Trial& node) {
  std::string line =
      "round " + std::to_string(node.id) + ", " + std::string(StepKindName(node.kind));
  if (!node.parents.empty()) line += " of round " + std::to_string(node.parents.front());
  line += ": ";
  if (node.duplicate_of.has_value()) {
    line += "the kernel of round " + std::to_string(*node.duplicate_of) +
            " once more, not run again; write another one; it was ";
  }
  if (node.correct()) {
    line += "right, " + Significant(*node.ns / 1e3, 3) + " us";
  } else {
    line += std::string(VerdictName(node.verdict.kind)) + ", " + node.verdict.message;
  }
  if (node.advice.has_value()) line += "; on the advice: " + node.advice->plan;
  return line;
}

// The candidate as it was written, if that is not what is compiled.
const Json& Written(const Candidate& candidate) { return MemberOrNull(candidate.params, "triton"); }

std::string SourceOf(const Candidate& candidate) {
  const Json& written = Written(candidate);
  return written.is_object() ? written.value("source", "") : candidate.source.code;
}

Json LaunchPlanOf(const Candidate& candidate) {
  if (const Json& written = Written(candidate); written.is_object()) {
    return MemberOrNull(written, "plan");
  }
  return PlanFieldsOf(candidate.ToJson());
}

}  // namespace

AgentPrompts::AgentPrompts(Task task)
    : task_(std::move(task)),
      language_(task_.language.empty() ? DeviceTypeName(task_.signature->device) : task_.language),
      region_(DescribeRegion(*task_.signature)),
      region_kind_(RegionKind(*task_.signature)) {}

Json AgentPrompts::Values(const Step& step, const std::vector<Trial>& nodes,
                          const std::vector<std::string>& hints) const {
  Json tried = Json::array();
  for (const Trial& node : nodes) {
    if (node.judged()) tried.push_back(TriedLine(node));
  }
  Json values = {{"language", language_},     {"arch", task_.arch},   {"region", region_},
                 {"device", task_.device},    {"floor", task_.floor}, {"rival", task_.rival},
                 {"tried", std::move(tried)}, {"hints", hints}};
  if (step.parent == nullptr) return values;
  const Trial& parent = *step.parent;
  if (parent.candidate.has_value()) {
    values["source"] = SourceOf(*parent.candidate);
    values["launch_plan"] = LaunchPlanOf(*parent.candidate).dump(1);
  } else {
    values["source"] = parent.reply.empty() ? "(the reply had no text)" : parent.reply;
    values["launch_plan"] = "(none could be read: what stands above is the whole reply)";
  }
  if (step.kind == StepKind::kRepair) {
    Json evidence = parent.verdict.evidence;
    values["verdict"] = VerdictName(parent.verdict.kind);
    values["message"] = parent.duplicate_of.has_value()
                            ? "the kernel of round " + std::to_string(*parent.duplicate_of) +
                                  " once more, not run again; it was: " + parent.verdict.message
                            : parent.verdict.message;
    values["log"] = MemberOrNull(evidence, "log");
    evidence.erase("log");
    values["evidence"] = evidence.empty() ? Json() : std::move(evidence);
    return values;
  }
  const bool shown = task_.metrics;
  values["time_us"] = parent.ns.value_or(0) / 1e3;
  values["resources"] = shown && !parent.resources.empty() ? parent.resources : Json();
  values["profile"] = shown ? parent.profile : Json();
  values["derived"] = shown ? parent.derived : Json();
  return values;
}

Result<Prompt> AgentPrompts::Render(const std::string& name, const Json& values,
                                    const Trial* parent) const {
  KnowledgeQuery query{language_, region_kind_, task_.arch, ""};
  if (parent != nullptr && task_.metrics) {
    const Json& limiter = MemberOrNull(parent->derived, "limiter");
    if (limiter.is_string()) query.limiter = limiter.get<std::string>();
  }
  std::vector<const Document*> left_out;
  const auto documents = Retrieve(query, task_.max_documents, &left_out);
  CF_ASSIGN_OR_RETURN(Prompt prompt, RenderPrompt(name, values, documents));
  for (const Document* document : left_out) prompt.documents_left_out.push_back(document->id);
  return prompt;
}

Result<Prompt> AgentPrompts::ForCoder(const Step& step, const std::vector<Trial>& nodes,
                                      const std::optional<Advice>& advice,
                                      const std::vector<std::string>& hints) const {
  Json values = Values(step, nodes, hints);
  values["judge_issue"] = advice.has_value() ? Json(advice->issue) : Json();
  values["judge_plan"] = advice.has_value() ? Json(advice->plan) : Json();
  return Render("coder_" + std::string(StepKindName(step.kind)), values, step.parent);
}

Result<Prompt> AgentPrompts::ForJudge(const Step& step, const std::vector<Trial>& nodes,
                                      const std::vector<std::string>& hints) const {
  return Render("judge_" + std::string(StepKindName(step.kind)), Values(step, nodes, hints),
                step.parent);
}

Result<Prompt> JudgeAgain(const Prompt& first, const std::string& fault, const std::string& reply) {
  CF_ASSIGN_OR_RETURN(const Prompt again, RenderPrompt("judge_again", {{"fault", fault}}, {}));
  Prompt prompt = first;
  prompt.name = again.name;
  prompt.version = again.version;
  prompt.messages.push_back({Speaker::kAssistant, reply.empty() ? "(no text)" : reply});
  for (const Message& message : again.messages) prompt.messages.push_back(message);
  prompt.sha256 = Sha256Hex(CanonicalJson(ToJson(prompt.messages)));
  return prompt;
}

}  // namespace cudaforge
