#include "forge/trial.h"

#include <algorithm>
#include <climits>
#include <utility>

#include "base/sha256.h"
#include "cache/kernel_store.h"

namespace cudaforge {
namespace {

constexpr double kMaxNs = 1e18;

constexpr StepKind kStepKinds[] = {StepKind::kStart, StepKind::kSeed, StepKind::kRepair,
                                   StepKind::kOptimize};

Result<StepKind> ParseStepKind(std::string_view name) {
  for (const StepKind kind : kStepKinds) {
    if (name == StepKindName(kind)) return kind;
  }
  return Status::InvalidArgument("kind: not one of start, seed, repair, optimize");
}

Result<int> NodeNumber(const Json& json, const char* field) {
  CF_ASSIGN_OR_RETURN(const int64_t value, JsonInt(json, field));
  if (value < 0 || value >= INT_MAX) {  // so that the next id is valid
    return Status::InvalidArgument(std::string(field) + ": out of range");
  }
  return static_cast<int>(value);
}

Status ReadOptionalInt(const Json& json, const char* field, std::optional<int>* out) {
  if (MemberOrNull(json, field).is_null()) return Status::Ok();
  CF_ASSIGN_OR_RETURN(*out, NodeNumber(json, field));
  return Status::Ok();
}

std::string TextOrNone(const Json& json, const char* field) {
  const Json& value = MemberOrNull(json, field);
  return value.is_string() ? value.get<std::string>() : "";
}

// Nanoseconds of a call. Without the field, leaves *out unchanged.
Status ReadOptionalTime(const Json& json, const char* field, std::optional<double>* out) {
  if (MemberOrNull(json, field).is_null()) return Status::Ok();
  CF_ASSIGN_OR_RETURN(const double ns, JsonDouble(json, field));
  if (!(ns > 0 && ns < kMaxNs)) {
    return Status::InvalidArgument(std::string(field) + ": out of range");
  }
  *out = ns;
  return Status::Ok();
}

Json ObjectOr(const Json& json, const char* field, const Json& otherwise) {
  const Json& value = MemberOrNull(json, field);
  return value.is_object() ? value : otherwise;
}

Result<std::optional<Candidate>> ReadCandidate(const Json& json) {
  const Json& source = MemberOrNull(json, "source");
  if (source.is_null()) return std::optional<Candidate>();
  Json whole = ObjectOr(json, "plan", Json::object());
  whole["language"] = MemberOrNull(json, "language");
  whole["code"] = source;
  whole["author"] = MemberOrNull(json, "author");
  whole["params"] = ObjectOr(json, "params", Json::object());
  CF_ASSIGN_OR_RETURN(Candidate candidate, Candidate::FromJson(whole));
  return std::optional(std::move(candidate));
}

}  // namespace

std::string_view StepKindName(StepKind kind) {
  switch (kind) {
    case StepKind::kStart:
      return "start";
    case StepKind::kSeed:
      return "seed";
    case StepKind::kRepair:
      return "repair";
    case StepKind::kOptimize:
      return "optimize";
  }
  return "";
}

Json Trial::ToJson() const {
  Json json = {{"author", author}, {"verdict", verdict.ToJson()}, {"seconds", seconds}};
  if (ns.has_value()) json["ns"] = FloatToJson(*ns);
  if (!resources.empty()) json["resources"] = resources;
  if (session.empty()) {  // a generator can rewrite it
    if (candidate.has_value()) json["params"] = candidate->params;
    return LenientCopy(json);
  }
  json.update({{"session", session},
               {"id", id},
               {"parent", parents.empty() ? Json() : Json(parents.front())},
               {"kind", StepKindName(kind)},
               {"device_seconds", device_seconds},
               {"advice", nullptr},
               {"prompts", prompts},
               {"calls", Json::array()}});
  if (parents.size() > 1) json["parents"] = parents;
  if (candidate.has_value()) {
    const Json whole = candidate->ToJson();
    json["language"] = whole["language"];
    json["source"] = whole["code"];
    json["params"] = whole["params"];
    json["plan"] = PlanFieldsOf(whole);
  }
  if (rival_ns.has_value()) json["rival_ns"] = FloatToJson(*rival_ns);
  if (!profile.is_null()) json["profile"] = profile;
  if (!derived.is_null()) json["derived"] = derived;
  if (advice.has_value()) json["advice"] = {{"issue", advice->issue}, {"plan", advice->plan}};
  if (!silence.empty()) json["silence"] = silence;
  if (!hints.empty()) json["hints"] = hints;
  if (!reply.empty()) json["reply"] = reply;
  if (!answered) json["answered"] = false;
  if (!evaluated) json["evaluated"] = false;
  if (duplicate_of.has_value()) json["duplicate_of"] = *duplicate_of;
  if (!judged_before.is_null()) json["judged_before"] = judged_before;
  for (const LedgerEntry& call : calls) json["calls"].push_back(call.ToJson());
  // Logs and replies may hold invalid UTF-8, also because cutting may split a character.
  return LenientCopy(json);
}

Result<Trial> Trial::FromJson(const Json& json) {
  Trial node;
  CF_ASSIGN_OR_RETURN(node.id, NodeNumber(json, "id"));
  std::optional<int> parent;
  CF_RETURN_IF_ERROR(ReadOptionalInt(json, "parent", &parent));
  if (parent.has_value()) node.parents.push_back(*parent);
  if (const Json& all = MemberOrNull(json, "parents"); all.is_array()) {
    node.parents.clear();
    for (const Json& one : all) {
      CF_ASSIGN_OR_RETURN(const int id, NodeNumber({{"parents", one}}, "parents"));
      node.parents.push_back(id);
    }
  }
  CF_RETURN_IF_ERROR(ReadOptionalInt(json, "duplicate_of", &node.duplicate_of));
  CF_ASSIGN_OR_RETURN(const std::string kind, JsonString(json, "kind"));
  CF_ASSIGN_OR_RETURN(node.kind, ParseStepKind(kind));
  node.session = TextOrNone(json, "session");
  CF_ASSIGN_OR_RETURN(node.author, JsonString(json, "author"));
  CF_ASSIGN_OR_RETURN(node.candidate, ReadCandidate(json));
  node.reply = TextOrNone(json, "reply");
  CF_ASSIGN_OR_RETURN(node.verdict, Verdict::FromJson(MemberOrNull(json, "verdict")));
  node.answered = MemberOrNull(json, "answered") != false;
  node.evaluated = MemberOrNull(json, "evaluated") != false;
  CF_RETURN_IF_ERROR(ReadOptionalTime(json, "ns", &node.ns));
  CF_ASSIGN_OR_RETURN(node.seconds, AmountFromJson(json, "seconds"));
  if (!MemberOrNull(json, "device_seconds").is_null()) {
    CF_ASSIGN_OR_RETURN(node.device_seconds, AmountFromJson(json, "device_seconds"));
  }
  CF_RETURN_IF_ERROR(ReadOptionalTime(json, "rival_ns", &node.rival_ns));
  node.resources = ObjectOr(json, "resources", Json::object());
  node.profile = ObjectOr(json, "profile", Json());
  node.derived = ObjectOr(json, "derived", Json());
  if (const Json& advice = MemberOrNull(json, "advice"); advice.is_object()) {
    node.advice = Advice{TextOrNone(advice, "issue"), TextOrNone(advice, "plan")};
  }
  node.silence = TextOrNone(json, "silence");
  node.judged_before = ObjectOr(json, "judged_before", Json());
  if (const Json& prompts = MemberOrNull(json, "prompts"); prompts.is_array()) {
    node.prompts = prompts;
  }
  for (const Json& hint : MemberOrNull(json, "hints")) {
    if (hint.is_string()) node.hints.push_back(hint.get<std::string>());
  }
  const Json& calls = MemberOrNull(json, "calls");
  if (!calls.is_array()) return Status::InvalidArgument("calls: expected an array");
  for (const Json& call : calls) {
    CF_ASSIGN_OR_RETURN(LedgerEntry entry, LedgerEntry::FromJson(call));
    node.calls.push_back(std::move(entry));
  }
  return node;
}

Json PromptNote(const Prompt& prompt) {
  Json note = {{"name", prompt.name},
               {"version", prompt.version},
               {"sha256", prompt.sha256},
               {"documents", prompt.documents}};
  if (!prompt.documents_left_out.empty()) note["documents_left_out"] = prompt.documents_left_out;
  return note;
}

std::string CandidateDigest(const Candidate& candidate) {
  Json json = candidate.ToJson();
  json.erase("author");
  json.erase("params");
  return Sha256Hex(LenientText(json));
}

const Trial* Population::Find(int id) const {
  const auto found = std::find_if(trials_.begin(), trials_.end(),
                                  [id](const Trial& trial) { return trial.id == id; });
  return found != trials_.end() ? &*found : nullptr;
}

const Trial* Population::FindTried(const Candidate& candidate) const {
  const auto known = tried_.find(CandidateDigest(candidate));
  return known != tried_.end() ? Find(known->second) : nullptr;
}

const Trial* Population::best() const { return BestTrial(trials_); }

void Population::Add(Trial trial) {
  next_id_ = std::max(next_id_, trial.id + 1);
  if (trial.candidate.has_value() && trial.evaluated && !trial.duplicate_of.has_value()) {
    tried_.emplace(CandidateDigest(*trial.candidate), trial.id);
  }
  trials_.push_back(std::move(trial));
}

const Trial* BestTrial(const std::vector<Trial>& trials) {
  const Trial* best = nullptr;
  for (const Trial& trial : trials) {
    if (trial.correct() && (best == nullptr || *trial.ns < *best->ns)) best = &trial;
  }
  return best;
}

std::vector<Json> LastSession(const std::vector<Json>& lineage) {
  std::string last;
  for (const Json& node : lineage) {
    if (const std::string session = TextOrNone(node, "session"); !session.empty()) last = session;
  }
  std::vector<Json> nodes;
  if (last.empty()) return nodes;
  for (Json& node : SettledNodes(lineage)) {
    if (TextOrNone(node, "session") == last) nodes.push_back(std::move(node));
  }
  return nodes;
}

}  // namespace cudaforge
