#include "cache/record.h"

#include <xxhash.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/bytes.h"
#include "base/sha256.h"

namespace cudaforge {
namespace {

constexpr std::string_view kMagic = "CFRC";
constexpr size_t kHeaderBytes = 24;    // magic, format, lengths of JSON, candidate and binary
constexpr size_t kChecksumBytes = 16;  // XXH3-128, at the very end
constexpr size_t kMaxJsonBytes = size_t{32} << 20;

constexpr CacheRecord::JsonMember kJsonFields[] = {
    {"signature", &CacheRecord::signature}, {"verification", &CacheRecord::verification},
    {"timing", &CacheRecord::timing},       {"provenance", &CacheRecord::provenance},
    {"versions", &CacheRecord::versions},
};

constexpr int64_t kMaxCreated = 100'000'000'000;  // seconds since 1970: the year 5138

bool IsFinite(const Json& value) { return value.is_number() && std::isfinite(value.get<double>()); }
bool IsText(const Json& value) { return value.is_string(); }
bool IsTexts(const Json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), IsText);
}
bool IsInterval(const Json& value) {
  return value.is_array() && value.size() == 3 && std::all_of(value.begin(), value.end(), IsFinite);
}
bool IsTime(const Json& value) {
  return value.is_number_integer() && value >= 0 && value <= kMaxCreated;
}
bool IsOuterRace(const Json& value) { return JsonString(value, "key").ok(); }

struct FieldRule {
  std::string_view field;
  bool (*fits)(const Json&);
  std::string_view form;
};
constexpr FieldRule kVerificationRules[] = {{"cases", IsTexts, "a list of texts"}};
constexpr FieldRule kTimingRules[] = {
    {"aten_us", IsFinite, "a number"},
    {"inductor_us", IsFinite, "a number"},
    {"winner_us", IsFinite, "a number"},
    {"rounds", IsFinite, "a number"},
    {"best_rival", IsText, "a text"},
    {"speedup", IsInterval, "three numbers"},
    {"within", IsOuterRace, "a race with a key"},
};
constexpr FieldRule kProvenanceRules[] = {
    {"author", IsText, "a text"},
    {"reason", IsText, "a text"},
    {"created", IsTime, "a number of seconds since 1970"},
    {"candidates_tried", IsFinite, "a number"},
    {"budget_s", IsFinite, "a number"},
    {"forge_seconds", IsFinite, "a number"},
};

// Whether the fields of `object` that are neither absent nor null follow `rules`.
Status CheckForm(const Json& object, std::string_view name, std::span<const FieldRule> rules) {
  for (const FieldRule& rule : rules) {
    if (object.is_null()) break;
    const auto value = object.find(rule.field);
    if (value == object.end() || value->is_null() || rule.fits(*value)) continue;
    return Status::InvalidArgument(std::string(name) + "." + std::string(rule.field) + " is not " +
                                   std::string(rule.form));
  }
  return Status::Ok();
}

Status Corrupt(std::string_view what) {
  return Status::Corruption("cache record: " + std::string(what));
}

Result<CacheRecord> FromParts(Json json, std::string_view candidate, std::string_view binary) {
  CacheRecord record;
  auto kind = JsonString(json, "kind");
  auto key = JsonString(json, "key");
  auto arch = JsonString(json, "arch");
  if (!kind.ok() || !key.ok() || !arch.ok()) return Corrupt("kind, key or arch is missing");
  const auto known = CacheRecord::ParseKind(*kind);
  if (!known.ok()) return Corrupt(known.status().message());
  record.kind = *known;
  record.key = std::move(key).value();
  record.arch = std::move(arch).value();
  for (const auto& [name, member] : kJsonFields) {
    auto field = json.find(name);
    if (field != json.end()) record.*member = std::move(*field);
  }
  record.candidate = candidate;
  record.binary = binary;
  Status valid = record.Validate();
  if (!valid.ok()) return Corrupt(valid.message());
  return record;
}

}  // namespace

// Against damage, not against malice: whoever can write to a cache can write a good checksum.
std::string RecordChecksum(std::string_view bytes) {
  XXH128_canonical_t digest;
  XXH128_canonicalFromHash(&digest, XXH3_128bits(bytes.data(), bytes.size()));
  return {reinterpret_cast<const char*>(digest.digest), sizeof(digest.digest)};
}

bool IsArchName(std::string_view arch) {
  return !arch.empty() && arch.size() <= 64 && std::all_of(arch.begin(), arch.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_-.:+").find(c) != std::string_view::npos;
  });
}

std::string_view CacheRecord::KindName(Kind kind) {
  switch (kind) {
    case Kind::kWinner:
      return "winner";
    case Kind::kNegative:
      return "negative";
  }
  return "";
}

Result<CacheRecord::Kind> CacheRecord::ParseKind(std::string_view name) {
  for (const Kind kind : {Kind::kWinner, Kind::kNegative}) {
    if (name == KindName(kind)) return kind;
  }
  return Status::InvalidArgument("kind is neither 'winner' nor 'negative'");
}

bool JudgedAlike(const Json& versions, const Json& others) {
  const auto alike = [&](const char* of) {
    return MemberOrNull(versions, of) == MemberOrNull(others, of);
  };
  return alike("torch") && alike("verifier");
}

Status CacheRecord::Validate() const {
  if (!IsArchName(arch)) return Status::InvalidArgument("not the name of an arch");
  CF_RETURN_IF_ERROR(CheckFields());
  const bool winner = kind == Kind::kWinner;
  if (candidate.empty() == winner || binary.empty() == winner) {
    return Status::InvalidArgument(winner ? "a winner needs a candidate and a binary"
                                          : "a negative entry has no candidate and no binary");
  }
  if (binary.size() > kMaxRecordBytes / 2) return Status::InvalidArgument("the binary is too big");
  if (key != Sha256Hex(CanonicalJson(signature))) {
    return Status::Corruption("the key is not the signature's");
  }
  return Status::Ok();
}

Status CacheRecord::CheckFields() const {
  if (!signature.is_object()) return Status::InvalidArgument("the signature is no object");
  for (const auto& [name, member] : kJsonFields) {
    const Json& field = this->*member;
    if (!field.is_object() && !field.is_null()) {
      return Status::InvalidArgument(std::string(name) + " is no object");
    }
  }
  CF_RETURN_IF_ERROR(CheckForm(verification, "verification", kVerificationRules));
  CF_RETURN_IF_ERROR(CheckForm(timing, "timing", kTimingRules));
  return CheckForm(provenance, "provenance", kProvenanceRules);
}

double CacheRecord::SpeedupLow() const {
  const Json& interval = MemberOrNull(timing, "speedup");
  if (!interval.is_array() || interval.empty()) return 0;
  return interval[0].is_number() ? interval[0].get<double>() : 0;
}

std::span<const CacheRecord::JsonMember> CacheRecord::JsonFields() { return kJsonFields; }

std::string CacheRecord::Encode() const {
  Json json = {{"kind", KindName(kind)}, {"key", key}, {"arch", arch}};
  for (const auto& [name, member] : kJsonFields) json[name] = this->*member;
  // Messages of compilers may hold bytes that are no UTF-8: replaced, not refused.
  const std::string text = LenientText(json);
  std::string bytes;
  bytes.reserve(kHeaderBytes + text.size() + candidate.size() + binary.size() + kChecksumBytes);
  bytes += kMagic;
  AppendLittleEndian(&bytes, uint32_t{kFormat});
  AppendLittleEndian(&bytes, static_cast<uint32_t>(text.size()));
  AppendLittleEndian(&bytes, static_cast<uint32_t>(candidate.size()));
  AppendLittleEndian(&bytes, static_cast<uint64_t>(binary.size()));
  bytes += text;
  bytes += candidate;
  bytes += binary;
  bytes += RecordChecksum(bytes);
  return bytes;
}

Result<CacheRecord> CacheRecord::Decode(std::string_view bytes) {
  if (bytes.size() < kHeaderBytes + kChecksumBytes || bytes.size() > kMaxRecordBytes) {
    return Corrupt("impossible length");
  }
  if (!bytes.starts_with(kMagic)) return Corrupt("wrong magic");
  const std::string_view body = bytes.substr(0, bytes.size() - kChecksumBytes);
  // Checked before the format: magic, format and checksum keep their places in every version.
  if (bytes.substr(body.size()) != RecordChecksum(body)) return Corrupt("the checksum differs");
  const uint32_t format = LittleEndianAt<uint32_t>(bytes, 4);
  if (format > kFormat) {
    return Status::Unsupported("cache record: format " + std::to_string(format) +
                               " is newer than this version reads");
  }
  if (format != kFormat) return Corrupt("unknown format");
  const size_t json_bytes = LittleEndianAt<uint32_t>(bytes, 8);
  const size_t candidate_bytes = LittleEndianAt<uint32_t>(bytes, 12);
  const uint64_t binary_bytes = LittleEndianAt<uint64_t>(bytes, 16);
  const size_t payload = body.size() - kHeaderBytes;
  if (json_bytes + candidate_bytes > payload ||
      binary_bytes != payload - json_bytes - candidate_bytes) {
    return Corrupt("the lengths do not add up");
  }
  const std::string_view text = body.substr(kHeaderBytes);
  auto json = ParseJson(text.substr(0, json_bytes), {.max_bytes = kMaxJsonBytes});
  if (!json.ok()) return Corrupt(json.status().message());
  CF_ASSIGN_OR_RETURN(CacheRecord record,
                      FromParts(*std::move(json), text.substr(json_bytes, candidate_bytes),
                                text.substr(json_bytes + candidate_bytes)));
  record.checksum = Hex(bytes.substr(body.size()));
  return record;
}

}  // namespace cudaforge
