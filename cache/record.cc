#include "cache/record.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/sha256.h"
#include "base/text.h"

namespace cudaforge {
namespace {

constexpr std::string_view kMagic = "CFRC";
constexpr size_t kHeaderBytes = 40;    // magic, format, and the lengths of the seven parts
constexpr size_t kChecksumBytes = 16;  // XXH3-128, at the very end
constexpr size_t kMaxRecordBytes = size_t{256} << 20;
constexpr size_t kMaxJsonBytes = size_t{32} << 20;  // of each JSON text

constexpr int64_t kDay = int64_t{24} * 60 * 60;   // seconds
constexpr int64_t kMaxCreated = 100'000'000'000;  // seconds since 1970: the year 5138

constexpr double kMaxMicroseconds = 1e12;
constexpr double kMaxSpeedup = 1e9;

bool IsFinite(const Json& value) { return value.is_number() && std::isfinite(value.get<double>()); }
bool IsWithin(const Json& value, double most) {
  return IsFinite(value) && value.get<double>() >= 0 && value.get<double>() <= most;
}
bool IsMicroseconds(const Json& value) { return IsWithin(value, kMaxMicroseconds); }
bool IsSpeedup(const Json& value) { return IsWithin(value, kMaxSpeedup); }
bool IsText(const Json& value) { return value.is_string(); }
bool IsTexts(const Json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), IsText);
}
bool IsInterval(const Json& value) {
  return value.is_array() && value.size() == 3 &&
         std::all_of(value.begin(), value.end(), IsSpeedup);
}
bool IsTrue(const Json& value) { return value == true; }
bool IsTime(const Json& value) {
  return value.is_number_integer() && value >= 0 && value <= kMaxCreated;
}
bool IsOuterRace(const Json& value);

struct FieldRule {
  std::string_view field;
  bool (*fits)(const Json&);
  std::string_view form;
};
constexpr FieldRule kVerificationRules[] = {{"cases", IsTexts, "a list of texts"}};
constexpr FieldRule kTimingRules[] = {
    {"aten_us", IsMicroseconds, "a number of microseconds"},
    {"inductor_us", IsMicroseconds, "a number of microseconds"},
    {"winner_us", IsMicroseconds, "a number of microseconds"},
    {"rounds", IsFinite, "a number"},
    {"best_rival", IsText, "a text"},
    {"speedup", IsInterval, "three speed-ups"},
    {"speedup_over_aten", IsInterval, "three speed-ups"},
    {"speedup_over_inductor", IsInterval, "three speed-ups"},
    {"within", IsOuterRace, "a race with a key"},
};
constexpr FieldRule kProvenanceRules[] = {
    {"author", IsText, "a text"},
    {"reason", IsText, "a text"},
    {"why", IsText, "a text"},
    {"created", IsTime, "a number of seconds since 1970"},
    {"candidates_tried", IsFinite, "a number"},
    {"budget_s", IsFinite, "a number"},
    {"forge_seconds", IsFinite, "a number"},
    {"out_of_time", IsTrue, "true"},
};

// The JSON texts, in the order of the bytes.
constexpr std::string CacheRecord::*kTexts[] = {&CacheRecord::signature, &CacheRecord::verification,
                                                &CacheRecord::timing, &CacheRecord::provenance,
                                                &CacheRecord::candidate};
// Those that may be empty, with their rules.
struct Evidence {
  const char* name;
  std::string CacheRecord::*text;
  std::span<const FieldRule> rules;
};
constexpr Evidence kEvidence[] = {
    {"verification", &CacheRecord::verification, kVerificationRules},
    {"timing", &CacheRecord::timing, kTimingRules},
    {"provenance", &CacheRecord::provenance, kProvenanceRules},
};

// Whether `object` is null, or an object whose fields that are neither absent nor null follow
// `rules`.
Status CheckForm(const Json& object, std::string_view name, std::span<const FieldRule> rules) {
  if (object.is_null()) return Status::Ok();
  if (!object.is_object()) return Status::InvalidArgument(std::string(name) + " is no object");
  for (const FieldRule& rule : rules) {
    const auto value = object.find(rule.field);
    if (value == object.end() || value->is_null() || rule.fits(*value)) continue;
    return Status::InvalidArgument(std::string(name) + "." + std::string(rule.field) + " is not " +
                                   std::string(rule.form));
  }
  return Status::Ok();
}

bool IsOuterRace(const Json& value) {
  return JsonString(value, "key").ok() && CheckForm(value, "within", kTimingRules).ok();
}

Status Corrupt(std::string_view what) {
  return Status::Corruption("cache record: " + std::string(what));
}

// Of what Fields() gives.
Status CheckFields(const Json& fields) {
  if (!MemberOrNull(fields, "signature").is_object()) {
    return Status::InvalidArgument("the signature is no object");
  }
  for (const auto& [name, _, rules] : kEvidence) {
    CF_RETURN_IF_ERROR(CheckForm(MemberOrNull(fields, name), name, rules));
  }
  return CheckForm(MemberOrNull(fields, "versions"), "versions", {});
}

Result<Json> ParseText(std::string_view name, const std::string& text) {
  auto json = ParseJson(text, {.max_bytes = kMaxJsonBytes});
  if (json.ok()) return json;
  return Status::InvalidArgument(std::string(name) + ": " + json.status().message());
}

// What a record is checked for whenever it is read.
Status CheckWhole(const CacheRecord& record) {
  CF_RETURN_IF_ERROR(record.CheckIdentity());
  CF_RETURN_IF_ERROR(CheckForm(record.versions, "versions", {}));
  const bool kernel = record.has_kernel();
  if (record.candidate.empty() == kernel || record.binary.empty() == kernel) {
    return Status::InvalidArgument(kernel ? "a winner needs a candidate and a binary"
                                          : "a negative entry has no candidate and no binary");
  }
  if (record.binary.size() > kMaxRecordBytes / 2) {
    return Status::InvalidArgument("the binary is too big");
  }
  return Status::Ok();
}

// Parts of known lengths, one after the other.
class Parts {
 public:
  explicit Parts(std::string_view bytes) : rest_(bytes) {}
  std::string_view Next(size_t size) {
    const std::string_view part = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return part;
  }

 private:
  std::string_view rest_;
};

Status ReadJsonPart(const Json& json, CacheRecord* record) {
  auto kind = JsonString(json, "kind");
  auto key = JsonString(json, "key");
  auto arch = JsonString(json, "arch");
  if (!kind.ok() || !key.ok() || !arch.ok()) return Corrupt("kind, key or arch is missing");
  const auto known = CacheRecord::ParseKind(*kind);
  if (!known.ok()) return Corrupt(known.status().message());
  record->kind = *known;
  record->key = std::move(key).value();
  record->arch = std::move(arch).value();
  record->versions = MemberOrNull(json, "versions");
  const Json& doubtful = MemberOrNull(json, "doubtful");
  if (IsTime(doubtful)) record->doubtful = doubtful.get<int64_t>();
  return Status::Ok();
}

// The lower bound of an interval of `race`; 0 where there is none.
double LowOf(const Json& race, const char* interval) {
  const Json& value = MemberOrNull(race, interval);
  return IsInterval(value) ? value[0].get<double>() : 0;
}

bool Beats(const Json& race, const char* interval, const std::string& rival) {
  const Json &mine = MemberOrNull(race, "winner_us"),
             &its = MemberOrNull(race, (rival + "_us").c_str());
  const bool slower = IsFinite(mine) && IsFinite(its) && mine.get<double>() >= its.get<double>();
  return LowOf(race, interval) > kPromotionBound && !slower;
}

bool BeatsFastest(const Json& race) {
  const Json& rival = MemberOrNull(race, "best_rival");
  return Beats(race, "speedup", rival.is_string() ? rival.get<std::string>() : "");
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
    return IsLetter(c) || IsDigit(c) || std::string_view("_-.:+").find(c) != std::string_view::npos;
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

Served ServedBy(const Json& timing, bool one_call) {
  const bool alone = BeatsFastest(timing);
  const Json& within = MemberOrNull(timing, "within");
  return {.compiled = alone && (within.is_null() || BeatsFastest(within)),
          .eager = one_call && (alone || Beats(timing, "speedup_over_aten", "aten"))};
}

bool JudgedAlike(const Json& versions, const Json& others) {
  const auto alike = [&](const char* of) {
    return MemberOrNull(versions, of) == MemberOrNull(others, of);
  };
  return alike("torch") && alike("verifier");
}

Status CacheRecord::CheckIdentity() const {
  if (!IsArchName(arch)) return Status::InvalidArgument("not the name of an arch");
  if (key != Sha256Hex(signature)) return Status::Corruption("the key is not the signature's");
  return Status::Ok();
}

Result<Json> CacheRecord::Fields() const {
  Json fields = {{"versions", versions}};
  CF_ASSIGN_OR_RETURN(fields["signature"], ParseText("signature", signature));
  for (const auto& [name, text, _] : kEvidence) {
    fields[name] = nullptr;
    if ((this->*text).empty()) continue;
    CF_ASSIGN_OR_RETURN(fields[name], ParseText(name, this->*text));
  }
  CF_RETURN_IF_ERROR(CheckFields(fields));
  return fields;
}

Status CacheRecord::SetFields(const Json& object) {
  CF_RETURN_IF_ERROR(CheckFields(object));
  versions = MemberOrNull(object, "versions");
  signature = CanonicalJson(MemberOrNull(object, "signature"));
  for (const auto& [name, text, _] : kEvidence) {
    const Json& evidence = MemberOrNull(object, name);
    // Messages of compilers may hold bytes that are no UTF-8: replaced, not refused.
    this->*text = evidence.is_null() ? "" : LenientText(evidence);
  }
  return Status::Ok();
}

Status CacheRecord::Validate() const {
  CF_RETURN_IF_ERROR(CheckWhole(*this));
  return Fields().status();
}

double CacheRecord::SpeedupLow() const { return LowOf(JsonOrNull(timing), "speedup"); }

Served CacheRecord::Serves() const {
  if (!has_kernel()) return {};
  const Json region = JsonOrNull(signature);
  return ServedBy(JsonOrNull(timing), MemberOrNull(region, "nodes").size() == 1);
}

bool CacheRecord::DoubtedLately() const {
  return doubtful != 0 && std::time(nullptr) - doubtful < kDay;
}

bool CacheRecord::WantsTime() const {
  return kind == Kind::kNegative && IsTrue(MemberOrNull(JsonOrNull(provenance), "out_of_time"));
}

std::string CacheRecord::Encode() const {
  Json head = {{"kind", KindName(kind)}, {"key", key}, {"arch", arch}, {"versions", versions}};
  if (doubtful != 0) head["doubtful"] = doubtful;
  const std::string json = LenientText(head);
  std::string bytes(kMagic);
  AppendLittleEndian(&bytes, uint32_t{kFormat});
  AppendLittleEndian(&bytes, static_cast<uint32_t>(json.size()));
  for (const auto text : kTexts) {
    AppendLittleEndian(&bytes, static_cast<uint32_t>((this->*text).size()));
  }
  AppendLittleEndian(&bytes, static_cast<uint64_t>(binary.size()));
  bytes += json;
  for (const auto text : kTexts) bytes += this->*text;
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
  if (format != kFormat) {
    return Corrupt("format " + std::to_string(format) + " is not read by this version");
  }
  constexpr size_t kLengths = 1 + std::size(kTexts);  // of the JSON text and of those
  static_assert(8 + 4 * kLengths + 8 == kHeaderBytes);
  size_t length[kLengths];
  size_t texts = 0;
  for (size_t i = 0; i < kLengths; ++i) {
    length[i] = LittleEndianAt<uint32_t>(bytes, 8 + 4 * i);
    texts += length[i];
  }
  const size_t payload = body.size() - kHeaderBytes;
  if (texts > payload || LittleEndianAt<uint64_t>(bytes, kHeaderBytes - 8) != payload - texts) {
    return Corrupt("the lengths do not add up");
  }
  Parts parts(body.substr(kHeaderBytes));
  auto json = ParseJson(parts.Next(length[0]), {.max_bytes = kMaxJsonBytes});
  if (!json.ok()) return Corrupt(json.status().message());
  CacheRecord record;
  CF_RETURN_IF_ERROR(ReadJsonPart(*json, &record));
  for (size_t i = 0; i < std::size(kTexts); ++i) record.*kTexts[i] = parts.Next(length[i + 1]);
  record.binary = parts.Next(payload - texts);
  if (const Status sound = CheckWhole(record); !sound.ok()) return Corrupt(sound.message());
  record.checksum = Hex(bytes.substr(body.size()));
  return record;
}

}  // namespace cudaforge
