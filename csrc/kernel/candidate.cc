#include "kernel/candidate.h"

#include <algorithm>

#include "base/integers.h"
#include "base/text.h"
#include "kernel/library_product.h"
#include "kernel/tensor_map.h"

namespace cudaforge {
namespace {

constexpr std::string_view kAgent = "agent:";
constexpr size_t kMaxLaunches = 64;
constexpr size_t kMaxArgs = 256;
constexpr size_t kMaxScratch = 32;  // and as many prepared buffers
constexpr size_t kMaxDims = 5;      // of a tensor map
constexpr size_t kMaxConstraints = 64;
constexpr size_t kMaxName = 128;
constexpr int64_t kMaxScratchBytes = int64_t{64} << 30;
constexpr int64_t kMaxBlockThreads = 1024;
constexpr int64_t kMaxGridX = (int64_t{1} << 31) - 1;
constexpr int64_t kMaxRange = int64_t{1} << 62;
constexpr int64_t kMaxGridYZ = 65535;
constexpr int64_t kMaxClusterBlocks = 16;
constexpr int64_t kMaxSharedBytes = 1 << 20;

Status Invalid(const std::string& where, const std::string& what) {
  return Status::InvalidArgument("candidate: " + where + ": " + what);
}

using Kind = LaunchArg::Kind;

// The kinds of arguments that are an index, by name.
constexpr std::pair<Kind, const char*> kIndexed[] = {
    {Kind::kInput, "in"},        {Kind::kOutput, "out"},           {Kind::kInOut, "inout"},
    {Kind::kScratch, "scratch"}, {Kind::kTensorMap, "tensor_map"}, {Kind::kPrepared, "prepared"}};

Json ArgToJson(const LaunchArg& arg) {
  if (arg.kind == Kind::kInt) return {{"int", arg.expr.text()}};
  if (arg.kind == Kind::kFloat) return {{"float", arg.number}};
  if (arg.kind == Kind::kSymbol) return {{"symbol", arg.symbol}};
  for (const auto& [kind, name] : kIndexed) {
    if (arg.kind == kind) return {{name, arg.index}};
  }
  return nullptr;
}

bool IsIdentifier(const std::string& name) {
  if (name.empty() || name.size() > kMaxName || IsDigit(name[0])) return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return IsLetter(c) || IsDigit(c) || c == '_'; });
}

Result<int> SmallIndex(const Json& json, const char* field) {
  CF_ASSIGN_OR_RETURN(const int64_t index, JsonInt(json, field));
  if (index < 0 || index >= static_cast<int64_t>(kMaxArgs)) return Invalid(field, "out of range");
  return static_cast<int>(index);
}

Result<LaunchArg> ArgFromJson(const Json& json) {
  if (!json.is_object() || json.size() != 1) return Invalid("args", "one field each");
  LaunchArg arg;
  const std::string name = json.begin().key();
  if (name == "int") {
    arg.kind = Kind::kInt;
    CF_ASSIGN_OR_RETURN(const std::string text, JsonString(json, "int"));
    CF_ASSIGN_OR_RETURN(arg.expr, IntExpr::Parse(text));
    return arg;
  }
  if (name == "float") {
    arg.kind = Kind::kFloat;
    CF_ASSIGN_OR_RETURN(arg.number, JsonDouble(json, "float"));
    return arg;
  }
  if (name == "symbol") {
    arg.kind = Kind::kSymbol;
    CF_ASSIGN_OR_RETURN(arg.symbol, JsonString(json, "symbol"));
    if (!IsIdentifier(arg.symbol)) return Invalid("symbol", "not an identifier");
    return arg;
  }
  for (const auto& [kind, known] : kIndexed) {
    if (name != known) continue;
    arg.kind = kind;
    CF_ASSIGN_OR_RETURN(arg.index, SmallIndex(json, known));
    return arg;
  }
  return Invalid("args", "unknown kind \"" + name.substr(0, 80) + "\"");
}

Result<IntExpr> ExprField(const Json& json, const char* field) {
  CF_ASSIGN_OR_RETURN(const std::string text, JsonString(json, field));
  return IntExpr::Parse(text);
}

Status NotYet(const char* where, const std::string& what) {
  return Status::Unsupported(std::string("candidate: ") + where + ": " + what +
                             " not supported yet");
}

Json DimsToJson(const IntExpr (&dims)[3]) {
  return {dims[0].text(), dims[1].text(), dims[2].text()};
}

Status DimsFromJson(const Json& json, const char* field, IntExpr (&dims)[3]) {
  CF_ASSIGN_OR_RETURN(const Json array, JsonField(json, field));
  if (!array.is_array() || array.size() != 3) return Invalid(field, "three expressions");
  for (size_t d = 0; d < 3; ++d) {
    if (!array[d].is_string()) return Invalid(field, "three expressions");
    CF_ASSIGN_OR_RETURN(dims[d], IntExpr::Parse(array[d].get<std::string>()));
  }
  return Status::Ok();
}

Json ExprsToJson(const std::vector<IntExpr>& exprs) {
  Json texts = Json::array();
  for (const IntExpr& expr : exprs) texts.push_back(expr.text());
  return texts;
}

Result<std::vector<IntExpr>> ExprsFromJson(const Json& json, const char* field, size_t most) {
  const Json& texts = MemberOrNull(json, field);
  const std::string form = "at most " + std::to_string(most) + " expressions";
  if (!texts.is_array() || texts.size() > most) return Invalid(field, form);
  std::vector<IntExpr> exprs;
  for (const Json& text : texts) {
    if (!text.is_string()) return Invalid(field, form);
    CF_ASSIGN_OR_RETURN(IntExpr expr, IntExpr::Parse(text.get<std::string>()));
    exprs.push_back(std::move(expr));
  }
  return exprs;
}

constexpr const char* kScratchForm =
    R"(at most 32 buffers, each an expression or {"bytes": EXPRESSION, "zeroed": true})";

Json ScratchToJson(const ScratchBuffer& buffer) {
  if (!buffer.zeroed) return buffer.bytes.text();
  return {{"bytes", buffer.bytes.text()}, {"zeroed", true}};
}

Result<ScratchBuffer> ScratchFromJson(const Json& json) {
  const Json& text = json.is_object() ? MemberOrNull(json, "bytes") : json;
  if (!text.is_string()) return Invalid("scratch_bytes", kScratchForm);
  CF_ASSIGN_OR_RETURN(IntExpr bytes, IntExpr::Parse(text.get<std::string>()));
  return ScratchBuffer(std::move(bytes), MemberOrNull(json, "zeroed") == true);
}

Json TensorMapToJson(const TensorMap& map) {
  return {{"of", ArgToJson(map.of)},         {"dtype", map.dtype},
          {"sizes", ExprsToJson(map.sizes)}, {"strides", ExprsToJson(map.strides)},
          {"box", ExprsToJson(map.box)},     {"swizzle", map.swizzle}};
}

Result<TensorMap> TensorMapFromJson(const Json& json) {
  TensorMap map;
  CF_ASSIGN_OR_RETURN(map.of, ArgFromJson(MemberOrNull(json, "of")));
  CF_ASSIGN_OR_RETURN(map.dtype, JsonString(json, "dtype"));
  CF_ASSIGN_OR_RETURN(map.sizes, ExprsFromJson(json, "sizes", kMaxDims));
  CF_ASSIGN_OR_RETURN(map.strides, ExprsFromJson(json, "strides", kMaxDims));
  CF_ASSIGN_OR_RETURN(map.box, ExprsFromJson(json, "box", kMaxDims));
  CF_ASSIGN_OR_RETURN(map.swizzle, JsonInt(json, "swizzle"));
  return map;
}

Json AttributesToJson(const LaunchAttributes& attributes) {
  Json json = Json::object();
  const Json cluster = DimsToJson(attributes.cluster);
  if (cluster != DimsToJson(LaunchAttributes().cluster)) json["cluster"] = cluster;
  if (attributes.programmatic_dependent_launch) json["programmatic_dependent_launch"] = true;
  if (attributes.cooperative) json["cooperative"] = true;
  return json;
}

// For compatibility, "cluster" may be next to "attributes" instead of inside.
Status AttributesFromJson(const Json& launch, LaunchAttributes* attributes) {
  const Json& json = MemberOrNull(launch, "attributes");
  if (launch.contains("cluster")) {
    if (MemberOrNull(json, "cluster") != Json()) return Invalid("cluster", "given twice");
    CF_RETURN_IF_ERROR(DimsFromJson(launch, "cluster", attributes->cluster));
  }
  if (json.is_null()) return Status::Ok();
  if (!json.is_object()) return Invalid("attributes", "an object");
  for (const auto& [name, value] : json.items()) {
    if (name == "cluster") {
      CF_RETURN_IF_ERROR(DimsFromJson(json, "cluster", attributes->cluster));
    } else if (name == "programmatic_dependent_launch") {
      CF_ASSIGN_OR_RETURN(attributes->programmatic_dependent_launch, JsonBool(json, name));
    } else if (name == "cooperative") {
      CF_ASSIGN_OR_RETURN(attributes->cooperative, JsonBool(json, name));
    } else {
      return Invalid("attributes", "unknown \"" + name.substr(0, 80) + "\"");
    }
  }
  return Status::Ok();
}

Result<Launch> LaunchFromJson(const Json& json, Language language) {
  Launch launch;
  CF_ASSIGN_OR_RETURN(launch.kernel, JsonString(json, "kernel"));
  if (!IsIdentifier(launch.kernel)) return Invalid("kernel", "not an identifier");
  CF_ASSIGN_OR_RETURN(const Json args, JsonField(json, "args"));
  if (!args.is_array() || args.size() > kMaxArgs) return Invalid("args", "at most 256 of them");
  for (const Json& item : args) {
    CF_ASSIGN_OR_RETURN(LaunchArg arg, ArgFromJson(item));
    launch.args.push_back(std::move(arg));
  }
  if (DeviceOf(language) == DeviceType::kCuda) {
    CF_RETURN_IF_ERROR(DimsFromJson(json, "grid", launch.grid));
    CF_RETURN_IF_ERROR(DimsFromJson(json, "block", launch.block));
    CF_RETURN_IF_ERROR(AttributesFromJson(json, &launch.attributes));
    CF_ASSIGN_OR_RETURN(launch.dynamic_shared_bytes, ExprField(json, "dynamic_shared_bytes"));
  } else {
    CF_ASSIGN_OR_RETURN(launch.range, ExprField(json, "range"));
    CF_ASSIGN_OR_RETURN(launch.grain, ExprField(json, "grain"));
  }
  return launch;
}

Result<int64_t> InRange(const IntExpr& expr, const OpSignature& signature, const char* what,
                        int64_t low, int64_t high) {
  CF_ASSIGN_OR_RETURN(const int64_t value, expr.Evaluate(signature));
  if (value < low || value > high) {
    return Invalid(what, std::to_string(value) + " is not in [" + std::to_string(low) + ", " +
                             std::to_string(high) + "]");
  }
  return value;
}

Status ValidateTensorMaps(const LaunchPlan& plan, const OpSignature& signature, bool cuda) {
  if (!cuda && !plan.tensor_maps.empty()) {
    return Status::Unsupported("candidate: tensor_maps: a CPU has no tensor maps");
  }
  for (size_t i = 0; i < plan.tensor_maps.size(); ++i) {
    const Status status = EvaluateTensorMap(plan.tensor_maps[i], plan, signature).status();
    if (status.ok()) continue;
    return {status.code(),
            "candidate: tensor_maps[" + std::to_string(i) + "]: " + status.message()};
  }
  return Status::Ok();
}

// `prepare` runs before the program's other inputs and outputs exist.
Status ValidatePrepareArg(const LaunchArg& arg, const LaunchPlan& plan,
                          const OpSignature& signature) {
  const LaunchArg& of =
      arg.kind == Kind::kTensorMap ? plan.tensor_maps[static_cast<size_t>(arg.index)].of : arg;
  if (of.kind == Kind::kOutput) return Invalid("prepare", "it has no outputs");
  if (of.kind == Kind::kInput && !signature.inputs[static_cast<size_t>(of.index)].frozen) {
    return Invalid("prepare", "input " + std::to_string(of.index) + " is not frozen");
  }
  return Status::Ok();
}

Status ValidateArg(const LaunchArg& arg, const LaunchPlan& plan, const OpSignature& signature) {
  size_t count = 0;
  switch (arg.kind) {
    case Kind::kInt:
      return arg.expr.Evaluate(signature).status();
    case Kind::kFloat:
      return Status::Ok();
    case Kind::kInput:
      count = signature.inputs.size();
      break;
    case Kind::kOutput:
      count = signature.outputs.size();
      break;
    case Kind::kScratch:
      count = plan.scratch_bytes.size();
      break;
    case Kind::kTensorMap:
      count = plan.tensor_maps.size();
      break;
    case Kind::kPrepared:
      count = plan.prepared_bytes.size();
      break;
    case Kind::kInOut:
    case Kind::kSymbol:
      return NotYet("args", ArgToJson(arg).dump() + " is");
  }
  if (arg.index >= 0 && static_cast<size_t>(arg.index) < count) return Status::Ok();
  return Invalid("args", ArgToJson(arg).dump() + " does not exist");
}

Status ValidateCudaShape(const Launch& launch, const OpSignature& signature) {
  int64_t threads = 1;
  int64_t blocks = 1;
  for (int d = 0; d < 3; ++d) {
    const int64_t grid_limit = d == 0 ? kMaxGridX : kMaxGridYZ;
    CF_RETURN_IF_ERROR(InRange(launch.grid[d], signature, "grid", 1, grid_limit).status());
    CF_ASSIGN_OR_RETURN(const int64_t block,
                        InRange(launch.block[d], signature, "block", 1, kMaxBlockThreads));
    CF_ASSIGN_OR_RETURN(const int64_t cluster, InRange(launch.attributes.cluster[d], signature,
                                                       "cluster", 1, kMaxClusterBlocks));
    threads *= block;
    blocks *= cluster;
  }
  if (threads > kMaxBlockThreads) return Invalid("block", "more than 1024 threads");
  if (blocks > kMaxClusterBlocks) return Invalid("cluster", "more than 16 blocks");
  return InRange(launch.dynamic_shared_bytes, signature, "dynamic_shared_bytes", 0, kMaxSharedBytes)
      .status();
}

Status ValidateLibrary(const Candidate& candidate, const OpSignature& signature) {
  const LaunchPlan& plan = candidate.plan;
  if (!plan.scratch_bytes.empty() || !plan.tensor_maps.empty() || !candidate.constraints.empty()) {
    return Invalid("language", "a library's product has no plan and no constraints");
  }
  CF_ASSIGN_OR_RETURN(const LibraryProduct product, LibraryProduct::Parse(candidate.source.code));
  return product.Validate(signature);
}

// One sequence of the plan: `prepare` or `launches`.
Status ValidateLaunches(const std::vector<Launch>& launches, const LaunchPlan& plan,
                        const OpSignature& signature) {
  if (!launches.empty() && launches[0].attributes.programmatic_dependent_launch) {
    return Invalid("programmatic_dependent_launch", "the first launch depends on none of the plan");
  }
  for (const Launch& launch : launches) {
    for (const LaunchArg& arg : launch.args) {
      CF_RETURN_IF_ERROR(ValidateArg(arg, plan, signature));
    }
    if (signature.device == DeviceType::kCuda) {
      CF_RETURN_IF_ERROR(ValidateCudaShape(launch, signature));
    } else {
      CF_RETURN_IF_ERROR(InRange(launch.range, signature, "range", 0, kMaxRange).status());
      CF_RETURN_IF_ERROR(InRange(launch.grain, signature, "grain", 1, INT64_MAX).status());
    }
  }
  return Status::Ok();
}

Json LaunchToJson(const Launch& launch, Language language) {
  Json args = Json::array();
  for (const LaunchArg& arg : launch.args) args.push_back(ArgToJson(arg));
  Json item = {{"kernel", launch.kernel}, {"args", args}};
  if (DeviceOf(language) == DeviceType::kCuda) {
    item["grid"] = DimsToJson(launch.grid);
    item["block"] = DimsToJson(launch.block);
    const Json attributes = AttributesToJson(launch.attributes);
    if (!attributes.empty()) item["attributes"] = attributes;
    item["dynamic_shared_bytes"] = launch.dynamic_shared_bytes.text();
  } else {
    item["range"] = launch.range.text();
    item["grain"] = launch.grain.text();
  }
  return item;
}

Status PreparedFromJson(const Json& json, Language language, LaunchPlan* plan) {
  CF_ASSIGN_OR_RETURN(plan->prepared_bytes, ExprsFromJson(json, "prepared_bytes", kMaxScratch));
  const Json& launches = MemberOrNull(json, "prepare");
  if (!launches.is_array() || launches.size() > kMaxLaunches) {
    return Invalid("prepare", "at most 64 launches");
  }
  for (const Json& item : launches) {
    CF_ASSIGN_OR_RETURN(Launch launch, LaunchFromJson(item, language));
    plan->prepare.push_back(std::move(launch));
  }
  return Status::Ok();
}

}  // namespace

std::string_view LanguageName(Language language) {
  switch (language) {
    case Language::kCuda:
      return "cuda";
    case Language::kCpu:
      return "cpu";
    case Language::kPtx:
      return "ptx";
    case Language::kAten:
      return "aten";
    case Language::kLibrary:
      return "library";
  }
  return "";
}

Result<Language> ParseLanguage(std::string_view name) {
  for (const Language language :
       {Language::kCuda, Language::kCpu, Language::kPtx, Language::kAten, Language::kLibrary}) {
    if (name == LanguageName(language)) return language;
  }
  return Invalid("language", "cuda, cpu, ptx, aten or library");
}

bool HasDeviceCode(Language language) {
  return language != Language::kAten && language != Language::kLibrary;
}

DeviceType DeviceOf(Language language) {
  return language == Language::kCpu ? DeviceType::kCpu : DeviceType::kCuda;
}

Json PlanFieldsOf(const Json& object) {
  Json plan = Json::object();
  for (const char* field : kPlanFields) {
    if (object.contains(field)) plan[field] = object[field];
  }
  return plan;
}

Json Candidate::ToJson() const {
  Json launches = Json::array();
  for (const Launch& launch : plan.launches) {
    launches.push_back(LaunchToJson(launch, source.language));
  }
  Json scratch = Json::array();
  for (const ScratchBuffer& buffer : plan.scratch_bytes) scratch.push_back(ScratchToJson(buffer));
  Json rules = Json::array();
  for (const Constraint& c : constraints) rules.push_back({{"aligned", c.value}, {"in", c.index}});
  Json json = {{"language", LanguageName(source.language)},
               {"code", source.code},
               {"scratch_bytes", scratch},
               {"launches", launches},
               {"constraints", rules},
               {"author", author},
               {"params", params}};
  for (const TensorMap& map : plan.tensor_maps) json["tensor_maps"].push_back(TensorMapToJson(map));
  if (!plan.prepared_bytes.empty()) json["prepared_bytes"] = ExprsToJson(plan.prepared_bytes);
  for (const Launch& launch : plan.prepare) {
    json["prepare"].push_back(LaunchToJson(launch, source.language));
  }
  return json;
}

Result<Candidate> Candidate::FromJson(const Json& json) {
  Candidate out;
  CF_ASSIGN_OR_RETURN(const std::string language, JsonString(json, "language"));
  CF_ASSIGN_OR_RETURN(out.source.language, ParseLanguage(language));
  CF_ASSIGN_OR_RETURN(out.source.code, JsonString(json, "code"));
  if (out.source.code.size() > KernelSource::kMaxBytes) return Invalid("code", "over 1 MiB");
  CF_ASSIGN_OR_RETURN(out.author, JsonString(json, "author"));
  CF_ASSIGN_OR_RETURN(out.params, JsonField(json, "params"));
  const bool launched = HasDeviceCode(out.source.language);
  if (!launched && IsByAgent(out.author)) {
    return Invalid("language", language + " is only for built-in authors");
  }

  CF_ASSIGN_OR_RETURN(const Json scratch, JsonField(json, "scratch_bytes"));
  if (!scratch.is_array() || scratch.size() > kMaxScratch) {
    return Invalid("scratch_bytes", kScratchForm);
  }
  for (const Json& item : scratch) {
    CF_ASSIGN_OR_RETURN(ScratchBuffer buffer, ScratchFromJson(item));
    out.plan.scratch_bytes.push_back(std::move(buffer));
  }
  const Json& maps = MemberOrNull(json, "tensor_maps");
  if (!maps.is_null() && (!maps.is_array() || maps.size() > kMaxTensorMaps)) {
    return Invalid("tensor_maps", "at most 32 of them");
  }
  for (const Json& item : maps) {
    CF_ASSIGN_OR_RETURN(TensorMap map, TensorMapFromJson(item));
    out.plan.tensor_maps.push_back(std::move(map));
  }
  CF_ASSIGN_OR_RETURN(const Json launches, JsonField(json, "launches"));
  if (!launches.is_array() || launches.empty() == launched || launches.size() > kMaxLaunches) {
    return Invalid("launches", launched ? "1 to 64 of them" : "none");
  }
  for (const Json& item : launches) {
    CF_ASSIGN_OR_RETURN(Launch launch, LaunchFromJson(item, out.source.language));
    if (launch.attributes.programmatic_dependent_launch && IsByAgent(out.author)) {
      return Invalid("programmatic_dependent_launch", "it is only for built-in authors");
    }
    out.plan.launches.push_back(std::move(launch));
  }
  if (json.contains("prepared_bytes") || json.contains("prepare")) {
    if (IsByAgent(out.author)) return Invalid("prepare", "it is only for built-in authors");
    CF_RETURN_IF_ERROR(PreparedFromJson(json, out.source.language, &out.plan));
  }
  CF_ASSIGN_OR_RETURN(const Json constraints, JsonField(json, "constraints"));
  if (!constraints.is_array() || constraints.size() > kMaxConstraints) {
    return Invalid("constraints", "at most 64 of them");
  }
  for (const Json& item : constraints) {
    Constraint rule;
    CF_ASSIGN_OR_RETURN(rule.value, JsonInt(item, "aligned"));
    CF_ASSIGN_OR_RETURN(rule.index, SmallIndex(item, "in"));
    out.constraints.push_back(rule);
  }
  return out;
}

Status Candidate::Validate(const OpSignature& signature) const {
  if (source.language == Language::kLibrary) return ValidateLibrary(*this, signature);
  if (!HasDeviceCode(source.language)) {
    return NotYet("language", std::string(LanguageName(source.language)) + " is");
  }
  const bool cuda = DeviceOf(source.language) == DeviceType::kCuda;
  if (DeviceOf(source.language) != signature.device) {
    return Invalid("language", "is not the signature's device");
  }
  for (const ScratchBuffer& buffer : plan.scratch_bytes) {
    CF_RETURN_IF_ERROR(
        InRange(buffer.bytes, signature, "scratch_bytes", 0, kMaxScratchBytes).status());
  }
  for (const IntExpr& bytes : plan.prepared_bytes) {
    CF_RETURN_IF_ERROR(InRange(bytes, signature, "prepared_bytes", 0, kMaxScratchBytes).status());
  }
  if (plan.prepared_bytes.empty() != plan.prepare.empty()) {
    return Invalid("prepare", "launches and the buffers that they fill, or neither");
  }
  for (const Constraint& rule : constraints) {
    const bool exists = rule.index >= 0 && rule.index < static_cast<int>(signature.inputs.size());
    if (!exists || !IsPowerOfTwo(rule.value) || rule.value > 4096) {
      return Invalid("constraints", "an input that exists and a power of two up to 4096");
    }
    const TensorSpec& input = signature.inputs[static_cast<size_t>(rule.index)];
    if (!cuda && rule.value > DTypeSize(input.dtype)) {
      return Invalid("constraints", "a CPU kernel reads data at every address of their elements");
    }
  }
  CF_RETURN_IF_ERROR(ValidateTensorMaps(plan, signature, cuda));
  CF_RETURN_IF_ERROR(ValidateLaunches(plan.launches, plan, signature));
  CF_RETURN_IF_ERROR(ValidateLaunches(plan.prepare, plan, signature));
  for (const Launch& launch : plan.prepare) {
    for (const LaunchArg& arg : launch.args) {
      CF_RETURN_IF_ERROR(ValidatePrepareArg(arg, plan, signature));
    }
  }
  return Status::Ok();
}

std::string AgentAuthor(std::string_view provider) {
  return std::string(kAgent) + std::string(provider);
}
bool IsByAgent(std::string_view author) { return author.starts_with(kAgent); }

}  // namespace cudaforge
