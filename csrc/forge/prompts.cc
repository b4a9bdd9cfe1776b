#include "forge/prompts.h"

#include <map>
#include <utility>

#include "base/sha256.h"

namespace cudaforge {
namespace {

// The values of each prompt; a question mark: may be nothing.
const std::map<std::string, std::vector<std::string>>& ValueNames() {
  static const auto* const names = new std::map<std::string, std::vector<std::string>>{
      {"coder_seed",
       {"language", "arch", "region", "device", "floor?", "rival?", "tried?", "hints?"}},
      {"coder_repair",
       {"language", "arch", "region", "device", "floor?", "rival?", "tried?", "hints?", "source",
        "launch_plan", "verdict", "message?", "evidence?", "log?", "judge_issue?", "judge_plan?"}},
      {"coder_optimize",
       {"language", "arch", "region", "device", "floor?", "rival?", "tried?", "hints?", "source",
        "launch_plan", "time_us", "resources?", "profile?", "derived?", "judge_issue?",
        "judge_plan?"}},
      {"judge_repair",
       {"language", "arch", "region", "tried?", "source", "launch_plan", "verdict", "message?",
        "evidence?", "log?"}},
      {"judge_optimize",
       {"language", "arch", "region", "device", "floor?", "rival?", "tried?", "hints?", "source",
        "launch_plan", "time_us", "resources?", "profile?", "derived?"}},
      {"judge_again", {"fault"}}};
  return *names;
}

}  // namespace

Result<Prompt> RenderPrompt(std::string_view name, const Json& values,
                            const std::vector<const Document*>& documents) {
  const auto found = ValueNames().find(std::string(name));
  if (found == ValueNames().end()) {
    return Status::NotFound("no prompt is called " + std::string(name));
  }
  Prompt prompt;
  prompt.name = std::string(name);
  prompt.version = 1;
  std::string text;
  for (std::string field : found->second) {
    const bool optional = field.ends_with('?');
    if (optional) field.pop_back();
    const auto value = values.find(field);
    const bool nothing = value == values.end() || value->is_null() ||
                         (value->is_string() && value->get_ref<const std::string&>().empty());
    if (value == values.end() || (nothing && !optional)) {
      return Status::InvalidArgument("prompt " + prompt.name + ": the value \"" + field +
                                     "\" is missing");
    }
    if (nothing) continue;
    text += "## " + field + "\n" +
            (value->is_string() ? value->get<std::string>() : LenientText(*value)) + "\n";
  }
  if (name != "judge_again") {
    std::string system = "You work on kernels.\n";
    for (const Document* document : documents) {
      prompt.documents.push_back(document->id);
      system += document->text;
    }
    prompt.messages.push_back({Author::kSystem, std::move(system)});
  }
  prompt.messages.push_back({Author::kUser, std::move(text)});
  prompt.sha256 = Sha256Hex(CanonicalJson(ToJson(prompt.messages)));
  return prompt;
}

std::vector<std::string> PromptNames() {
  std::vector<std::string> names;
  for (const auto& [name, fields] : ValueNames()) names.push_back(name);
  return names;
}

}  // namespace cudaforge
