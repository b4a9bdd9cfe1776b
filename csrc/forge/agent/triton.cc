#include "forge/agent/triton.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include "base/subprocess.h"
#include "base/text.h"
#include "forge/agent/coder.h"

namespace cudaforge {
namespace {

constexpr size_t kMaxWords = 2000;        // of an error, for the Coder
constexpr int kMostHiddenParameters = 2;  // scratch that Triton may need after the arguments
constexpr int kTritonAlignment = 16;      // guaranteed by Triton's divisibility attribute

Status Bad(const std::string& what) { return Status::InvalidArgument("launch plan: " + what); }

// "fp32" for kFloat32.
std::string_view TritonType(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "fp32";
    case DType::kFloat16:
      return "fp16";
    case DType::kBFloat16:
      return "bf16";
    case DType::kFloat64:
      return "fp64";
    case DType::kInt64:
      return "i64";
    case DType::kInt32:
      return "i32";
    case DType::kBool:
      return "i1";
  }
  return "";
}

// 90 for "cuda:sm_90a".
int CapabilityOf(std::string_view arch) {
  arch.remove_prefix(std::min(arch.find_first_of("0123456789"), arch.size()));
  int capability = 0;
  std::from_chars(arch.data(), arch.data() + arch.size(), capability);
  return capability;
}

// A launch argument in Triton's form.
struct Parameter {
  std::string type;      // "*fp32", "i64"
  bool aligned = false;  // of a pointer
};

class Lowering {
 public:
  Lowering(const OpSignature& signature, const TritonCompiler& compiler, const Cancel& cancel,
           std::string source, const Json& plan)
      : signature_(signature),
        compiler_(compiler),
        cancel_(cancel),
        source_(std::move(source)),
        plan_(plan) {}

  // Returns the candidate's fields except its author and params.
  Result<Json> Run();

 private:
  Result<Parameter> ParameterOf(const Json& argument) const;
  bool IsAligned(int64_t input) const;
  // Converts a launch to PTX's form, and adds its module to modules_.
  Result<Json> Lower(const Json& launch);
  // Returns the compiler's output for one kernel, cached by request.
  Result<Json> Compile(const Json& request);

  const OpSignature& signature_;
  const TritonCompiler& compiler_;
  const Cancel& cancel_;
  const std::string source_;
  const Json& plan_;
  std::map<std::string, Json> compiled_;  // by request
  std::vector<std::string> modules_;
};

bool Lowering::IsAligned(int64_t input) const {
  if (signature_.inputs[static_cast<size_t>(input)].alignment >= kTritonAlignment) return true;
  const Json rules = plan_.value("constraints", Json::array());
  return std::any_of(rules.begin(), rules.end(), [&](const Json& rule) {
    const auto in = JsonInt(rule, "in");
    const auto bytes = JsonInt(rule, "aligned");
    return in.ok() && bytes.ok() && *in == input && *bytes >= kTritonAlignment;
  });
}

Result<Parameter> Lowering::ParameterOf(const Json& argument) const {
  const auto pointer = [](std::string_view type) { return "*" + std::string(type); };
  if (argument.is_object() && argument.size() == 1) {
    const std::string kind = argument.begin().key();
    if (kind == "int") return Parameter{"i64"};
    if (kind == "float") return Parameter{"fp64"};
    const auto index = JsonInt(argument, kind);
    const auto within = [&](size_t count) {
      return index.ok() && *index >= 0 && *index < static_cast<int64_t>(count);
    };
    if (kind == "in" && within(signature_.inputs.size())) {
      const TensorSpec& spec = signature_.inputs[static_cast<size_t>(*index)];
      return Parameter{pointer(TritonType(spec.dtype)), IsAligned(*index)};
    }
    if (kind == "out" && within(signature_.outputs.size())) {
      return Parameter{
          pointer(TritonType(signature_.output_spec(static_cast<size_t>(*index)).dtype)), true};
    }
    if (kind == "scratch" && within(plan_.value("scratch_bytes", Json::array()).size())) {
      const Json types = plan_.value("scratch_types", Json::array());
      const auto at = static_cast<size_t>(*index);
      const bool named = types.is_array() && at < types.size() && types[at].is_string();
      return Parameter{pointer(named ? types[at].get<std::string>() : "fp32"), true};
    }
  }
  return Bad("args: " + Printable(argument.dump(), 100) + " is no argument of this region");
}

Result<Json> Lowering::Compile(const Json& request) {
  const std::string text = LenientText(request);
  if (const auto known = compiled_.find(text); known != compiled_.end()) return known->second;
  ProcessOptions options;
  options.input = text;
  options.timeout_ms = compiler_.timeout_ms;
  options.max_output = 8 * KernelSource::kMaxBytes;
  options.cancel = &cancel_;
  CF_ASSIGN_OR_RETURN(const ProcessResult run, RunProcess(compiler_.argv, options));
  if (run.cancelled) return Status::Cancelled("cancelled");
  if (run.timed_out) return Status::InvalidArgument("Triton did not compile it in time");
  const auto answer = ParseJson(run.output);
  if (run.exit_code != 0 || run.term_signal != 0 || !answer.ok() || !JsonBool(*answer, "ok").ok()) {
    return Status::InvalidArgument("Triton's compiler ended without an answer: " +
                                   Printable(run.errors, kMaxWords));
  }
  if (!*JsonBool(*answer, "ok")) {
    return Status::InvalidArgument("Triton: " +
                                   Printable(answer->value("error", "no words"), kMaxWords));
  }
  CF_ASSIGN_OR_RETURN(std::string ptx, JsonString(*answer, "ptx"));
  modules_.push_back(std::move(ptx));
  return compiled_.emplace(text, *answer).first->second;
}

Result<Json> Lowering::Lower(const Json& launch) {
  if (!launch.is_object()) return Bad("a launch is an object");
  CF_ASSIGN_OR_RETURN(const std::string kernel, JsonString(launch, "kernel"));
  CF_ASSIGN_OR_RETURN(const Json args, JsonField(launch, "args"));
  CF_ASSIGN_OR_RETURN(const Json grid, JsonField(launch, "grid"));
  if (!args.is_array()) return Bad("args is no array");
  Json types = Json::array();
  Json aligned = Json::array();
  for (const Json& argument : args) {
    CF_ASSIGN_OR_RETURN(const Parameter parameter, ParameterOf(argument));
    types.push_back(parameter.type);
    aligned.push_back(parameter.aligned);
  }
  const Json request = {{"source", source_},
                        {"kernel", kernel},
                        {"arguments", types},
                        {"aligned", aligned},
                        {"constants", launch.value("constants", Json::object())},
                        {"num_warps", launch.value("num_warps", Json(4))},
                        {"num_stages", launch.value("num_stages", Json(3))},
                        {"capability", CapabilityOf(compiler_.arch)}};
  CF_ASSIGN_OR_RETURN(const Json made, Compile(request));
  CF_ASSIGN_OR_RETURN(const std::string entry, JsonString(made, "entry"));
  CF_ASSIGN_OR_RETURN(const int64_t threads, JsonInt(made, "threads"));
  CF_ASSIGN_OR_RETURN(const int64_t shared, JsonInt(made, "shared_bytes"));
  CF_ASSIGN_OR_RETURN(const int64_t parameters, JsonInt(made, "parameters"));
  const int64_t hidden = parameters - static_cast<int64_t>(args.size());
  if (hidden < 0 || hidden > kMostHiddenParameters) {
    return Bad(kernel + " has " + std::to_string(parameters) + " parameters in PTX for " +
               std::to_string(args.size()) + " arguments");
  }
  Json all = args;
  for (int64_t i = 0; i < hidden; ++i) all.push_back({{"int", "0"}});  // the bits of a null pointer
  const auto text = [](int64_t n) { return std::to_string(n); };
  return Json{{"kernel", entry},
              {"args", all},
              {"grid", grid},
              {"block", {text(threads), "1", "1"}},
              {"dynamic_shared_bytes", text(shared)}};
}

// Returns true for a directive about the whole module.
bool IsHeader(std::string_view line) {
  static constexpr std::string_view kWords[] = {".version", ".target", ".address_size"};
  return std::any_of(std::begin(kWords), std::end(kWords),
                     [&](std::string_view word) { return line.starts_with(word); });
}

std::string EntryOf(std::string_view line) {
  constexpr std::string_view kEntry = ".entry ";
  const size_t at = line.find(kEntry);
  if (at == std::string_view::npos) return "";
  const std::string_view rest = line.substr(at + kEntry.size());
  return std::string(rest.substr(0, rest.find_first_of("( \t")));
}

// Merges PTX modules: the first one's version and target, and common declarations once.
// kInvalidArgument: two have an entry of the same name.
Result<std::string> JoinPtx(const std::vector<std::string>& modules) {
  std::string joined;
  std::set<std::string> declared;
  std::set<std::string> entries;
  for (size_t m = 0; m < modules.size(); ++m) {
    std::string_view rest = modules[m];
    while (!rest.empty()) {
      const size_t end = std::min(rest.find('\n'), rest.size() - 1);
      const std::string_view line = rest.substr(0, end + 1);
      rest.remove_prefix(end + 1);
      if (m > 0 && IsHeader(line)) continue;
      if (line.starts_with(".extern ") && !declared.emplace(line).second) continue;
      if (const std::string entry = EntryOf(line);
          !entry.empty() && !entries.insert(entry).second) {
        return Status::InvalidArgument("launch plan: " + entry +
                                       " is launched with different constants or types: write "
                                       "one kernel for each");
      }
      joined += line;
    }
  }
  return joined;
}

Result<Json> Lowering::Run() {
  const Json& launches = MemberOrNull(plan_, "launches");
  if (!launches.is_array() || launches.empty() || launches.size() > 64) {
    return Bad("launches: 1 to 64 of them");
  }
  Json lowered = Json::array();
  for (const Json& launch : launches) {
    CF_ASSIGN_OR_RETURN(Json one, Lower(launch));
    lowered.push_back(std::move(one));
  }
  CF_ASSIGN_OR_RETURN(std::string ptx, JoinPtx(modules_));
  if (ptx.size() > KernelSource::kMaxBytes)
    return Bad("its PTX is over " + std::to_string(KernelSource::kMaxBytes) + " bytes");
  return Json{{"launches", std::move(lowered)}, {"code", std::move(ptx)}};
}

}  // namespace

Result<Candidate> ParseTritonReply(std::string_view reply, const OpSignature& signature,
                                   const TritonCompiler& compiler, std::string author,
                                   const Cancel& cancel) {
  static constexpr std::array<std::string_view, 3> kWords = {"triton", "python", "py"};
  CF_ASSIGN_OR_RETURN(CoderBlocks blocks, ReadCoderBlocks(reply, kWords));
  Json plan = Json::object();
  const auto take = [&](const char* field) {
    if (blocks.plan.contains(field)) plan[field] = blocks.plan[field];
  };
  for (const char* field : kPlanFields) take(field);
  take("scratch_types");
  CF_ASSIGN_OR_RETURN(Json json, Lowering(signature, compiler, cancel, blocks.source, plan).Run());
  for (const char* field : kPlanFields) {
    if (plan.contains(field)) json.emplace(field, plan[field]);  // launches are converted already
  }
  CompletePlan(Language::kPtx, &json);
  json["language"] = LanguageName(Language::kPtx);
  json["author"] = std::move(author);
  json["params"] = {{"triton", {{"source", blocks.source}, {"plan", plan}}}};
  Result<Candidate> candidate = Candidate::FromJson(json);
  if (!candidate.ok()) {
    return Status::InvalidArgument("launch plan: " + Printable(candidate.status().message(), 400));
  }
  return candidate;
}

}  // namespace cudaforge
