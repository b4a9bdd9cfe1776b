#include "cache/source_pack.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "signature/op_signature.h"

namespace cudaforge {
namespace {

namespace fs = std::filesystem;

constexpr int kSourcePackFormat = 2;
constexpr std::string_view kRecordFile = "record.json";
constexpr std::string_view kLineageFile = "lineage.json";
// Fields of an agents' round that are long, or useful only to its session.
constexpr const char* kLeftOut[] = {"source", "plan", "profile", "reply", "params", "resources"};
constexpr std::string_view kKernel = "kernel";
constexpr std::string_view kExtensions[] = {".cu", ".cpp", ".ptx"};
constexpr size_t kMaxRecordText = size_t{4} << 20;
constexpr size_t kMaxSource = size_t{1} << 20;
constexpr size_t kMaxWinners = 100'000;
constexpr size_t kMaxOpsInName = 48;
constexpr size_t kKeyDigitsInName = 12;

// "addmm-erf-mul-7d3669ef5635": the ops without repetition, and the first digits of the key.
std::string FolderName(const CacheRecord& record) {
  std::vector<std::string> names;
  const Result<Json> parsed = ParseJson(record.signature);
  const Json signature = parsed.ok() ? *parsed : Json();
  for (const Json& node : MemberOrNull(signature, "nodes")) {
    const Json& whole = MemberOrNull(node, "op");
    if (!whole.is_string()) continue;
    std::string op(OpShortName(whole.get_ref<const std::string&>()));
    op.erase(0, op.find_first_not_of('_'));
    if (!IsIn(op, names)) names.push_back(op);
  }
  std::string joined;
  for (const std::string& name : names) {
    if (joined.size() + name.size() >= kMaxOpsInName) break;
    joined += name + "-";
  }
  const auto other = [](char c) { return !IsLetter(c) && !IsDigit(c) && c != '_' && c != '-'; };
  std::replace_if(joined.begin(), joined.end(), other, '_');
  return joined + record.key.substr(0, kKeyDigitsInName);
}

std::string Readable(const Json& json) {
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// The name of the source of variant `index`, without its extension: "kernel", "kernel-1".
std::string SourceStem(size_t index) {
  return std::string(kKernel) + (index == 0 ? "" : "-" + std::to_string(index));
}

// The files of one winner.
struct WinnerFiles {
  std::map<std::string, std::string> sources;  // by name
  std::string record;
  std::string lineage;  // the rounds of agents that led to it; may be empty
};

std::string LineageText(const std::vector<Json>& lineage) {
  Json rounds = Json::array();
  for (Json& node : SettledNodes(lineage)) {
    if (!node.is_object() || !node.contains("session")) continue;
    if (MemberOrNull(node, "evaluated") == Json(false)) continue;  // never finished
    for (const char* field : kLeftOut) node.erase(field);
    rounds.push_back(std::move(node));
  }
  return rounds.empty() ? "" : Readable(rounds);
}

Result<WinnerFiles> FilesOf(const CacheRecord& record, const std::vector<Json>& lineage) {
  WinnerFiles files;
  CF_ASSIGN_OR_RETURN(Json json, record.Fields());
  json.erase("verification");  // its variants have them
  json.erase("timing");
  for (size_t i = 0; i < record.variants.size(); ++i) {
    CF_ASSIGN_OR_RETURN(Json candidate, ParseJson(record.variants[i].candidate));
    CF_ASSIGN_OR_RETURN(const std::string language, JsonString(candidate, "language"));
    CF_ASSIGN_OR_RETURN(std::string source, JsonString(candidate, "code"));
    const int extension = language == "cuda" ? 0 : language == "cpu" ? 1 : 2;
    const std::string name = SourceStem(i) + std::string(kExtensions[extension]);
    candidate["code"] = {{"file", name}};
    files.sources[name] = std::move(source);
    json["variants"][i]["candidate"] = std::move(candidate);
  }
  json["format"] = kSourcePackFormat;
  json["key"] = record.key;
  json["arch"] = record.arch;
  files.record = Readable(json);
  files.lineage = LineageText(lineage);
  return files;
}

Status RemoveFile(const std::string& path) {
  std::error_code error;
  fs::remove(path, error);
  return error ? Status::IoError(path + ": " + error.message()) : Status::Ok();
}

// Removes an earlier winner's files that are not replaced: they are no evidence for this one.
Status WriteWinner(const WinnerFiles& files, const std::string& folder) {
  const std::string place = folder + "/";
  const std::string lineage = place + std::string(kLineageFile);
  CF_RETURN_IF_ERROR(MakeDirs(folder));
  for (const auto& [name, source] : files.sources) {
    CF_RETURN_IF_ERROR(WriteFileAtomic(place + name, source));
  }
  CF_RETURN_IF_ERROR(WriteFileAtomic(place + std::string(kRecordFile), files.record));
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kKernel) && IsIn(entry.path().extension().string(), kExtensions) &&
        !files.sources.contains(name)) {
      CF_RETURN_IF_ERROR(RemoveFile(place + name));
    }
  }
  return files.lineage.empty() ? RemoveFile(lineage) : WriteFileAtomic(lineage, files.lineage);
}

// The arch of all winners (of `arch`, unless that is empty); "" if there is none.
Result<std::string> OnlyArch(KernelStore& store, std::string_view arch) {
  std::set<std::string> archs;
  CF_RETURN_IF_ERROR(store.ForEach(arch, [&](const CacheRecord& record) {
    if (record.has_kernel()) archs.insert(record.arch);
    return true;
  }));
  if (archs.empty()) return std::string();
  if (archs.size() == 1) return *archs.begin();
  std::string names;
  for (const std::string& name : archs) names += (names.empty() ? "" : ", ") + name;
  return Status::InvalidArgument("there are kernels for " + names +
                                 ": select one with --arch, and export each to its own folder");
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
  if (format != kSourcePackFormat) {
    return Status::Corruption("unknown format " + std::to_string(format));
  }
  CacheRecord record;
  CF_ASSIGN_OR_RETURN(record.key, JsonString(json, "key"));
  CF_ASSIGN_OR_RETURN(record.arch, JsonString(json, "arch"));
  CF_RETURN_IF_ERROR(record.SetFields(json));
  CF_RETURN_IF_ERROR(record.CheckIdentity());
  CF_ASSIGN_OR_RETURN(const Json variants, JsonField(json, "variants"));
  if (!variants.is_array() || variants.empty()) {
    return Status::InvalidArgument("it has no kernel");
  }
  for (const Json& variant : variants) {
    CF_ASSIGN_OR_RETURN(Json candidate, JsonField(variant, "candidate"));
    CF_ASSIGN_OR_RETURN(const Json code, JsonField(candidate, "code"));
    CF_ASSIGN_OR_RETURN(const std::string file, JsonString(code, "file"));
    const std::string stem = SourceStem(record.variants.size());
    if (!file.starts_with(stem) || !IsIn(file.substr(stem.size()), kExtensions)) {
      return Status::InvalidArgument("there is no source file " + stem + ".cu, .cpp or .ptx");
    }
    CF_ASSIGN_OR_RETURN(candidate["code"], ReadFile(folder + "/" + file, kMaxSource));
    CF_ASSIGN_OR_RETURN(const Json contract, JsonField(variant, "contract"));
    Variant& kernel = record.variants.emplace_back();
    kernel.candidate = LenientText(candidate);
    kernel.verification = LenientText(MemberOrNull(variant, "verification"));
    kernel.timing = LenientText(MemberOrNull(variant, "timing"));
    kernel.contract = contract;
  }
  CF_RETURN_IF_ERROR(record.Fields().status());
  return record;
}

}  // namespace

Result<PackSummary> WriteSourcePack(KernelStore& store, const std::string& folder,
                                    std::string_view arch) {
  PackSummary summary;
  CF_ASSIGN_OR_RETURN(const std::string only, OnlyArch(store, arch));
  if (only.empty()) return summary;
  Status status;
  CF_RETURN_IF_ERROR(store.ForEach(only, [&](const CacheRecord& record) {
    if (!record.has_kernel() || record.doubtful != 0) return true;
    const std::string name = FolderName(record);
    const auto files = FilesOf(record, store.Lineage(record.key, record.arch));
    if (!files.ok()) {
      ++summary.rejected;
      summary.problems.push_back(name + ": " + files.status().message());
      return true;
    }
    status = WriteWinner(*files, folder + "/" + name);
    summary.exported += status.ok();
    return status.ok();
  }));
  CF_RETURN_IF_ERROR(status);
  return summary;
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
    return Status::NotFound(folder +
                            ": no winners. `cudaforge cache export` writes a folder of winners");
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
