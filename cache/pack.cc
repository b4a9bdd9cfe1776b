#include "cache/pack.h"

#include <ctime>
#include <filesystem>
#include <span>

#include "base/bytes.h"
#include "base/file.h"
#include "base/sha256.h"
#include "cache/source_pack.h"

namespace cudaforge {
namespace {

constexpr std::string_view kPackMagic = "CFPK";
constexpr uint32_t kPackFormat = 1;
constexpr size_t kPackHeaderBytes = 16;  // magic, format, manifest length
constexpr size_t kPackChecksumBytes = 64;
constexpr size_t kMaxPackBytes = size_t{4} << 30;
constexpr size_t kMaxManifestBytes = size_t{64} << 20;
constexpr size_t kKeyDigitsInProblem = 12;

Status Corrupt(const std::string& file, std::string_view what) {
  return Status::Corruption(file + ": " + std::string(what));
}

// Reads one record of a pack and checks its checksum.
Result<CacheRecord> ReadRecord(const Json& entry, std::string_view payload, size_t* offset) {
  auto bytes = JsonInt(entry, "bytes");
  auto sum = JsonString(entry, "sha256");
  if (!bytes.ok() || !sum.ok() || *bytes < 0 ||
      static_cast<uint64_t>(*bytes) > payload.size() - *offset) {
    *offset = payload.size();
    return Status::Corruption("the manifest refers to bytes beyond the end of the pack");
  }
  const std::string_view encoded = payload.substr(*offset, static_cast<size_t>(*bytes));
  *offset += encoded.size();
  if (Sha256Hex(encoded) != *sum) return Status::Corruption("the checksum differs");
  CF_ASSIGN_OR_RETURN(CacheRecord record, CacheRecord::Decode(encoded));
  CF_RETURN_IF_ERROR(record.Fields().status());
  return record;
}

// Stores `count` records from `read`, after `hooks`; `replace` as ImportPack. Errors of `read` name
// their record; those of `accept` get its key.
Result<PackSummary> Adopt(KernelStore& store, const ImportHooks& hooks, bool replace, size_t count,
                          const std::function<Result<CacheRecord>()>& read) {
  PackSummary summary;
  const auto tell = [&](Imported what, const std::string& line) {
    if (hooks.tell) hooks.tell(what, line);
  };
  const auto put = [&](std::span<const CacheRecord> records, Stays stays) {
    std::vector<bool> stored;
    const Status status = store.PutMany(records, stays, &stored);
    for (size_t i = 0; i < stored.size(); ++i) {
      const bool kernel = records[i].has_kernel();
      ++(!stored[i] ? summary.kept_existing : kernel ? summary.imported : summary.without_winner);
      if (kernel) {
        tell(stored[i] ? Imported::kStored : Imported::kKeptExisting,
             records[i].key.substr(0, kKeyDigitsInProblem));
      }
    }
    return status;
  };
  std::vector<CacheRecord> negatives;
  for (size_t i = 0; i < count; ++i) {
    auto record = read();
    Status status = record.status();
    std::string problem = status.message();
    if (status.ok() && hooks.accept) {
      status = hooks.accept(&*record);
      problem = record->key.substr(0, kKeyDigitsInProblem) + ": " + status.message();
    }
    if (!status.ok()) {
      ++summary.rejected;
      tell(Imported::kRejected, problem);
      summary.problems.push_back(std::move(problem));
    } else if (record->has_kernel()) {
      CF_RETURN_IF_ERROR(put({&*record, 1}, replace ? Stays::kNone : Stays::kUnlessMore));
    } else {
      negatives.push_back(std::move(record).value());
    }
  }
  if (!negatives.empty()) CF_RETURN_IF_ERROR(put(negatives, Stays::kUnlessMore));
  return summary;
}

}  // namespace

Result<PackSummary> ExportPack(KernelStore& store, const std::string& file, std::string_view arch) {
  PackSummary summary;
  Json entries = Json::array();
  std::string payload;
  CF_RETURN_IF_ERROR(store.ForEach(arch, [&](const CacheRecord& record) {
    if (record.doubtful != 0) return true;  // due for another measurement
    const std::string encoded = record.Encode();
    entries.push_back({{"key", record.key},
                       {"arch", record.arch},
                       {"bytes", encoded.size()},
                       {"sha256", Sha256Hex(encoded)}});
    payload += encoded;
    ++(record.has_kernel() ? summary.exported : summary.without_winner);
    return payload.size() <= kMaxPackBytes / 2;
  }));
  if (payload.size() > kMaxPackBytes / 2) {
    return Status::Unsupported("too many records for one pack: export one arch at a time");
  }
  if (entries.empty()) return summary;
  const std::string manifest =
      LenientText({{"created", static_cast<int64_t>(std::time(nullptr))}, {"records", entries}});
  std::string bytes(kPackMagic);
  AppendLittleEndian(&bytes, kPackFormat);
  AppendLittleEndian(&bytes, static_cast<uint64_t>(manifest.size()));
  bytes += manifest;
  bytes += payload;
  bytes += Sha256Hex(bytes);
  CF_RETURN_IF_ERROR(WriteFileAtomic(file, bytes));
  return summary;
}

Result<PackSummary> ImportPack(KernelStore& store, const std::string& path,
                               const ImportHooks& hooks, bool replace) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    CF_ASSIGN_OR_RETURN(std::vector<Result<CacheRecord>> records, ReadSourcePack(path));
    size_t next = 0;
    return Adopt(store, hooks, replace, records.size(), [&] { return std::move(records[next++]); });
  }
  CF_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kMaxPackBytes));
  if (bytes.size() < kPackHeaderBytes + kPackChecksumBytes || !bytes.starts_with(kPackMagic)) {
    return Corrupt(path, "not a pack (`cudaforge cache export` makes them)");
  }
  const std::string_view body =
      std::string_view(bytes).substr(0, bytes.size() - kPackChecksumBytes);
  if (std::string_view(bytes).substr(body.size()) != Sha256Hex(body)) {
    return Corrupt(
        path, "the checksum differs: it is incomplete or was changed. Copy or export it again");
  }
  const uint32_t format = LittleEndianAt<uint32_t>(body, 4);
  if (format > kPackFormat) {
    return Status::Unsupported(path + ": pack format " + std::to_string(format) +
                               " is newer than this version reads");
  }
  if (format != kPackFormat) {
    return Corrupt(path, "unknown pack format " + std::to_string(format));
  }
  const uint64_t manifest_bytes = LittleEndianAt<uint64_t>(body, 8);
  if (manifest_bytes > body.size() - kPackHeaderBytes)
    return Corrupt(path, "the manifest is incomplete");
  auto manifest = ParseJson(body.substr(kPackHeaderBytes, manifest_bytes),
                            {.max_bytes = kMaxManifestBytes, .max_depth = 8});
  if (!manifest.ok()) return Corrupt(path, manifest.status().message());
  auto entries = JsonField(*manifest, "records");
  if (!entries.ok() || !entries->is_array()) return Corrupt(path, "no list of records");

  const std::string_view payload = body.substr(kPackHeaderBytes + manifest_bytes);
  size_t offset = 0;
  size_t next = 0;
  return Adopt(store, hooks, replace, entries->size(), [&] {
    Result<CacheRecord> record = ReadRecord((*entries)[next++], payload, &offset);
    if (record.ok()) return record;
    return Result<CacheRecord>(
        Status(record.status().code(),
               "record " + std::to_string(next - 1) + ": " + record.status().message()));
  });
}

}  // namespace cudaforge
