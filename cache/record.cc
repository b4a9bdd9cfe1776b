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
constexpr size_t kHeaderBytes = 12;    // magic, format, and the length of the JSON head
constexpr size_t kChecksumBytes = 16;  // XXH3-128, at the very end
constexpr size_t kMaxRecordBytes = size_t{256} << 20;
constexpr size_t kMaxJsonBytes = size_t{32} << 20;  // of each JSON text
constexpr size_t kMaxVariants = 64;

constexpr int64_t kDay = 86'400;                  // seconds
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

// The parts after the head, in byte order: of the record, then of each variant.
constexpr std::string CacheRecord::*kTexts[] = {&CacheRecord::signature, &CacheRecord::verification,
                                                &CacheRecord::timing, &CacheRecord::provenance};
constexpr std::string Variant::*kVariantParts[] = {&Variant::candidate, &Variant::verification,
                                                   &Variant::timing, &Variant::binary};
// The texts that may be empty, with their rules.
template <typename Owner>
struct Evidence {
  const char* name;
  std::string Owner::*text;
  std::span<const FieldRule> rules;
};
constexpr Evidence<CacheRecord> kEvidence[] = {
    {"verification", &CacheRecord::verification, kVerificationRules},
    {"timing", &CacheRecord::timing, kTimingRules},
    {"provenance", &CacheRecord::provenance, kProvenanceRules},
};

constexpr Evidence<Variant> kVariantEvidence[] = {
    {"verification", &Variant::verification, kVerificationRules},
    {"timing", &Variant::timing, kTimingRules},
};

// Ok if `object` is null, or an object whose non-null fields follow `rules`.
Status CheckForm(const Json& object, std::string_view name, std::span<const FieldRule> rules) {
  if (object.is_null()) return Status::Ok();
  if (!object.is_object()) return Status::InvalidArgument(std::string(name) + " is not an object");
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

// Checks the result of Fields().
Status CheckFields(const Json& fields) {
  if (!MemberOrNull(fields, "signature").is_object()) {
    return Status::InvalidArgument("the signature is not an object");
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

bool IsContract(const Json& contract) {
  return contract.is_object() &&
         std::all_of(contract.begin(), contract.end(), [](const Json& range) {
           const auto min = JsonInt(range, "min"), max = JsonInt(range, "max");
           const auto multiple = JsonInt(range, "multiple");
           return min.ok() && max.ok() && multiple.ok() && *min <= *max && *multiple > 0;
         });
}

// Checks that run at every read.
Status CheckWhole(const CacheRecord& record) {
  CF_RETURN_IF_ERROR(record.CheckIdentity());
  CF_RETURN_IF_ERROR(CheckForm(record.versions, "versions", {}));
  if (record.variants.size() > kMaxVariants) return Status::InvalidArgument("too many variants");
  for (const Variant& variant : record.variants) {
    if (variant.candidate.empty() || variant.binary.empty()) {
      return Status::InvalidArgument("a variant needs a candidate and a binary");
    }
    if (variant.binary.size() > kMaxRecordBytes / 2) {
      return Status::InvalidArgument("the binary is too big");
    }
    if (!IsContract(variant.contract)) return Status::InvalidArgument("an invalid contract");
  }
  return Status::Ok();
}

// Consecutive parts of known lengths.
class Parts {
 public:
  explicit Parts(std::string_view bytes) : rest_(bytes) {}
  std::string_view Next(size_t size) {
    const std::string_view part = rest_.substr(0, size);
    rest_.remove_prefix(part.size());
    return part;
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

Status ReadHead(const Json& json, CacheRecord* record) {
  auto key = JsonString(json, "key");
  auto arch = JsonString(json, "arch");
  if (!key.ok() || !arch.ok()) return Corrupt("key or arch is missing");
  record->key = std::move(key).value();
  record->arch = std::move(arch).value();
  record->versions = MemberOrNull(json, "versions");
  const Json& doubtful = MemberOrNull(json, "doubtful");
  if (IsTime(doubtful)) record->doubtful = doubtful.get<int64_t>();
  const Json& variants = MemberOrNull(json, "variants");
  if (!variants.is_array() || variants.size() > kMaxVariants) return Corrupt("invalid variants");
  for (const Json& variant : variants) {
    record->variants.emplace_back().contract = MemberOrNull(variant, "contract");
  }
  return Status::Ok();
}

// The lower bound of an interval of `race`; 0 if there is none.
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

// Detects damage, not attacks: anyone who can write to a cache can write a valid checksum.
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

bool Variant::Holds(const std::map<std::string, int64_t>& symbols) const {
  for (const auto& [name, range] : contract.items()) {
    const auto size = symbols.find(name);
    if (size == symbols.end() || size->second < range["min"] || size->second > range["max"] ||
        size->second % range["multiple"].get<int64_t>() != 0) {
      return false;
    }
  }
  return true;
}

const Variant* CacheRecord::For(const std::map<std::string, int64_t>& symbols) const {
  const auto found = std::find_if(variants.begin(), variants.end(),
                                  [&](const Variant& one) { return one.Holds(symbols); });
  return found == variants.end() ? nullptr : &*found;
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
  const auto differ = [&](const char* of) {
    return MemberOrNull(versions, of).is_string() && MemberOrNull(others, of).is_string() &&
           !alike(of);
  };
  return alike("torch") && alike("verifier") && !differ("device") && !differ("cublaslt");
}

Status CacheRecord::CheckIdentity() const {
  if (!IsArchName(arch)) return Status::InvalidArgument("invalid name of an arch");
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
  fields["variants"] = Json::array();
  for (const Variant& variant : variants) {
    if (!IsContract(variant.contract)) return Status::InvalidArgument("an invalid contract");
    Json item = {{"contract", variant.contract}};
    for (const auto& [name, text, rules] : kVariantEvidence) {
      item[name] = nullptr;
      if ((variant.*text).empty()) continue;
      CF_ASSIGN_OR_RETURN(item[name], ParseText(name, variant.*text));
      CF_RETURN_IF_ERROR(CheckForm(item[name], name, rules));
    }
    fields["variants"].push_back(std::move(item));
  }
  for (const Evidence<Variant>& evidence : kVariantEvidence) {
    if (has_kernel()) fields[evidence.name] = fields["variants"][0][evidence.name];
  }
  return fields;
}

Status CacheRecord::SetFields(const Json& object) {
  CF_RETURN_IF_ERROR(CheckFields(object));
  versions = MemberOrNull(object, "versions");
  signature = CanonicalJson(MemberOrNull(object, "signature"));
  for (const auto& [name, text, _] : kEvidence) {
    const Json& evidence = MemberOrNull(object, name);
    // Compilers' messages may hold invalid UTF-8: it is replaced, not refused.
    this->*text = evidence.is_null() ? "" : LenientText(evidence);
  }
  return Status::Ok();
}

Status CacheRecord::Validate() const {
  CF_RETURN_IF_ERROR(CheckWhole(*this));
  return Fields().status();
}

double CacheRecord::SpeedupLow() const { return LowOf(JsonOrNull(race()), "speedup"); }

Served CacheRecord::Serves() const {
  const Variant* const kernel = For();
  if (kernel == nullptr) return {};
  const Json region = JsonOrNull(signature);
  return ServedBy(JsonOrNull(kernel->timing), MemberOrNull(region, "nodes").size() == 1);
}

bool CacheRecord::RecentlyDoubtful() const {
  return doubtful != 0 && std::time(nullptr) - doubtful < kDay;
}

bool CacheRecord::RanOutOfTime() const {
  return !has_kernel() && IsTrue(MemberOrNull(JsonOrNull(provenance), "out_of_time"));
}

std::string CacheRecord::Encode() const {
  Json head = {{"key", key}, {"arch", arch}, {"versions", versions}, {"variants", Json::array()}};
  if (doubtful != 0) head["doubtful"] = doubtful;
  std::string payload;
  const auto append = [&](const std::string& part) {
    head["bytes"].push_back(part.size());
    payload += part;
  };
  for (const auto text : kTexts) append(this->*text);
  for (const Variant& variant : variants) {
    head["variants"].push_back({{"contract", variant.contract}});
    for (const auto part : kVariantParts) append(variant.*part);
  }
  const std::string json = LenientText(head);
  std::string bytes(kMagic);
  AppendLittleEndian(&bytes, uint32_t{kFormat});
  AppendLittleEndian(&bytes, static_cast<uint32_t>(json.size()));
  bytes += json;
  bytes += payload;
  bytes += RecordChecksum(bytes);
  return bytes;
}

bool CacheRecord::IsEarlier(std::string_view bytes) {
  return bytes.size() >= kHeaderBytes && bytes.starts_with(kMagic) &&
         LittleEndianAt<uint32_t>(bytes, 4) < kFormat;
}

Result<CacheRecord> CacheRecord::Decode(std::string_view bytes) {
  if (bytes.size() < kHeaderBytes + kChecksumBytes || bytes.size() > kMaxRecordBytes) {
    return Corrupt("impossible length");
  }
  if (!bytes.starts_with(kMagic)) return Corrupt("wrong magic");
  const std::string_view body = bytes.substr(0, bytes.size() - kChecksumBytes);
  // Checked before the format, because magic, format and checksum are at the same place in every
  // version.
  if (bytes.substr(body.size()) != RecordChecksum(body)) return Corrupt("the checksum differs");
  const uint32_t format = LittleEndianAt<uint32_t>(bytes, 4);
  if (format > kFormat) {
    return Status::Unsupported("cache record: format " + std::to_string(format) +
                               " is newer than this version reads");
  }
  if (format != kFormat) {
    return Corrupt("format " + std::to_string(format) + " is not read by this version");
  }
  Parts parts(body.substr(kHeaderBytes));
  const uint32_t head_bytes = LittleEndianAt<uint32_t>(bytes, 8);
  auto head = ParseJson(parts.Next(head_bytes), {.max_bytes = kMaxJsonBytes});
  if (!head.ok()) return Corrupt(head.status().message());
  CacheRecord record;
  CF_RETURN_IF_ERROR(ReadHead(*head, &record));
  std::vector<std::string*> places;
  for (const auto text : kTexts) places.push_back(&(record.*text));
  for (Variant& variant : record.variants) {
    for (const auto part : kVariantParts) places.push_back(&(variant.*part));
  }
  const auto lengths = JsonIntArray(*head, "bytes");
  if (!lengths.ok() || lengths->size() != places.size())
    return Corrupt("an invalid list of lengths");
  for (size_t i = 0; i < places.size(); ++i) {
    const int64_t length = (*lengths)[i];
    if (length < 0 || static_cast<uint64_t>(length) > parts.rest().size()) {
      return Corrupt("the lengths do not add up");
    }
    *places[i] = parts.Next(static_cast<size_t>(length));
  }
  if (!parts.rest().empty()) return Corrupt("the lengths do not add up");
  if (const Status sound = CheckWhole(record); !sound.ok()) return Corrupt(sound.message());
  record.checksum = Hex(bytes.substr(body.size()));
  return record;
}

}  // namespace cudaforge
