#include "cache/source_pack.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "base/file.h"
#include "base/json.h"
#include "base/sha256.h"
#include "signature/op_signature.h"

namespace cudaforge {
namespace {

namespace fs = std::filesystem;

constexpr int kSourcePackFormat = 1;
constexpr std::string_view kRecordFile = "record.json";
constexpr std::string_view kLineageFile = "lineage.json";
// Of a round of agents, what is long or of use to a session alone.
constexpr const char* kLeftOut[] = {"source", "plan", "profile", "reply", "params", "resources"};
constexpr std::string_view kSourceFiles[] = {"kernel.cu", "kernel.cpp", "kernel.ptx"};
constexpr size_t kMaxRecordText = size_t{4} << 20;
constexpr size_t kMaxSource = size_t{1} << 20;
constexpr size_t kMaxWinners = 100'000;
constexpr size_t kMaxOpsInName = 48;
constexpr size_t kKeyDigitsInName = 12;

// "addmm-erf-mul-7d3669ef5635": the ops, each once, and the first digits of the key.
std::string FolderName(const CacheRecord& record) {
  std::vector<std::string> names;
  const Json nodes = record.signature.value("nodes", Json::array());
  for (const Json& node : nodes) {
    const std::string whole = node.is_object() ? node.value("op", "") : "";
    std::string op(OpShortName(whole));
    op.erase(0, op.find_first_not_of('_'));
    if (std::find(names.begin(), names.end(), op) == names.end()) names.push_back(op);
  }
  std::string joined;
  for (const std::string& name : names) {
    if (joined.size() + name.size() >= kMaxOpsInName) break;
    joined += name + "-";
  }
  std::replace_if(
      joined.begin(), joined.end(),
      [](unsigned char c) { return std::isalnum(c) == 0 && c != '_' && c != '-'; }, '_');
  return joined + record.key.substr(0, kKeyDigitsInName);
}

std::string Readable(const Json& json) {
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// The rounds of agents that led to the winner; no file where there are none.
Status WriteLineage(const std::vector<Json>& lineage, const std::string& folder) {
  Json rounds = Json::array();
  for (Json node : lineage) {
    if (!node.is_object() || !node.contains("session")) continue;
    if (!node.value("evaluated", true)) continue;  // replaced by a later node, or never finished
    for (const char* field : kLeftOut) node.erase(field);
    rounds.push_back(std::move(node));
  }
  if (rounds.empty()) return Status::Ok();
  return WriteFileAtomic(folder + "/" + std::string(kLineageFile), Readable(rounds));
}

Status WriteWinner(const CacheRecord& record, const std::string& folder) {
  CF_ASSIGN_OR_RETURN(Json candidate, ParseJson(record.candidate));
  CF_ASSIGN_OR_RETURN(const std::string language, JsonString(candidate, "language"));
  CF_ASSIGN_OR_RETURN(const std::string code, JsonString(candidate, "code"));
  const std::string_view file = kSourceFiles[language == "cuda" ? 0 : language == "cpu" ? 1 : 2];
  candidate["code"] = {{"file", file}};
  Json json = {{"format", kSourcePackFormat},
               {"key", record.key},
               {"arch", record.arch},
               {"candidate", std::move(candidate)}};
  for (const auto& [name, member] : CacheRecord::JsonFields()) json[name] = record.*member;
  CF_RETURN_IF_ERROR(MakeDirs(folder));
  CF_RETURN_IF_ERROR(WriteFileAtomic(folder + "/" + std::string(file), code));
  return WriteFileAtomic(folder + "/" + std::string(kRecordFile), Readable(json));
}

Result<CacheRecord> ReadWinner(const std::string& folder) {
  CF_ASSIGN_OR_RETURN(const std::string text,
                      ReadFile(folder + "/" + std::string(kRecordFile), kMaxRecordText));
  CF_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  CF_ASSIGN_OR_RETURN(const int64_t format, JsonInt(json, "format"));
  if (format > kSourcePackFormat) {
    return Status::Unsupported("format " + std::to_string(format) +
                               " is newer than this version reads");
  }
  CacheRecord record;
  CF_ASSIGN_OR_RETURN(record.key, JsonString(json, "key"));
  CF_ASSIGN_OR_RETURN(record.arch, JsonString(json, "arch"));
  CF_ASSIGN_OR_RETURN(Json candidate, JsonField(json, "candidate"));
  CF_ASSIGN_OR_RETURN(const Json code, JsonField(candidate, "code"));
  CF_ASSIGN_OR_RETURN(const std::string file, JsonString(code, "file"));
  if (std::find(std::begin(kSourceFiles), std::end(kSourceFiles), file) == std::end(kSourceFiles)) {
    return Status::InvalidArgument(
        "the source's file is none of kernel.cu, kernel.cpp and kernel.ptx");
  }
  CF_ASSIGN_OR_RETURN(candidate["code"], ReadFile(folder + "/" + file, kMaxSource));
  for (const auto& [name, member] : CacheRecord::JsonFields()) {
    if (const auto field = json.find(name); field != json.end()) record.*member = *field;
  }
  if (!IsArchName(record.arch)) return Status::InvalidArgument("not the name of an arch");
  CF_RETURN_IF_ERROR(record.CheckFields());
  if (record.key != Sha256Hex(CanonicalJson(record.signature))) {
    return Status::Corruption("the key is not the signature's");
  }
  record.candidate = LenientText(candidate);
  return record;
}

}  // namespace

Result<int64_t> WriteSourcePack(KernelStore& store, const std::string& folder,
                                std::string_view arch) {
  int64_t written = 0;
  Status status;
  CF_RETURN_IF_ERROR(store.ForEach(arch, [&](const CacheRecord& record) {
    if (record.kind != CacheRecord::Kind::kWinner) return true;
    const std::string place = folder + "/" + FolderName(record);
    status = WriteWinner(record, place);
    if (status.ok()) status = WriteLineage(store.Lineage(record.key, record.arch), place);
    written += status.ok();
    return status.ok();
  }));
  CF_RETURN_IF_ERROR(status);
  return written;
}

Result<std::vector<Result<CacheRecord>>> ReadSourcePack(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> found;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string path = it->path().string();
    if (PathExists(path + "/" + std::string(kRecordFile))) found.push_back(path);
    if (found.size() > kMaxWinners) return Status::Unsupported(folder + ": too many winners");
  }
  if (error) return Status::NotFound(folder + ": " + error.message());
  if (found.empty()) {
    return Status::NotFound(folder + ": no winners (`cudaforge cache export` writes such folders)");
  }
  std::sort(found.begin(), found.end());
  std::vector<Result<CacheRecord>> records;
  for (const std::string& path : found) {
    Result<CacheRecord> record = ReadWinner(path);
    if (record.ok()) {
      records.push_back(std::move(record));
    } else {
      const std::string name = fs::path(path).filename().string();
      records.emplace_back(Status(record.status().code(), name + ": " + record.status().message()));
    }
  }
  return records;
}

}  // namespace cudaforge
