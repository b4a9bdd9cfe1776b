// CacheRecord: everything about one kernel, or about a region without one. Stored and checked as
// one unit. FORMAT.md has the byte format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace cudaforge {

// A kernel is faster than a rival if the lower bound of its speed-up is above this.
inline constexpr double kPromotionBound = 1.03;

// The calls that a kernel may serve.
struct Served {
  bool compiled = false, eager = false;
};
// Derives Served from a record's timing (FORMAT.md). A kernel beats a rival if the lower bound of
// the speed-up is above kPromotionBound and the kernel's median is lower.
// - compiled graphs: if it beats the fastest rival, also in a race `within` a larger region
// - eager calls: if the region is `one_call` of ATen, and it beats ATen or the fastest rival
Served ServedBy(const Json& timing, bool one_call);

// One of a record's kernels. Texts are JSON, see CacheRecord.
struct Variant {
  std::string candidate;     // of Candidate::ToJson()
  std::string binary;        // cubin or shared object
  std::string verification;  // {"report", "cases"}: of the input sets passed; may be empty
  std::string timing;        // of the race; may be empty
  // {SYMBOL: {"min", "max", "multiple"}}: the sizes for which it was raced. Empty: all.
  Json contract = Json::object();

  // Returns true if `symbols` has a size within each range of the contract.
  bool Holds(const std::map<std::string, int64_t>& symbols) const;
};

struct CacheRecord {
  static constexpr int kFormat = 4;

  std::string key;   // OpSignature::Key()
  std::string arch;  // DeviceArch::target
  Json versions;     // cudaforge, torch, verifier, cublaslt, and the device it was proven on
  // Seconds since 1970 when it was measured on a busy machine, else 0. A doubtful record is used. A
  // process that forges re-tests it, at the earliest a day later.
  int64_t doubtful = 0;
  // JSON texts (fields in FORMAT.md). Parsed only when used, because a serving process needs few of
  // them.
  std::string signature;   // OpSignature::Canonical(), whose SHA-256 is the key
  std::string provenance;  // author, time, duration, and why there is no winner; may be
                           // empty
  // Of a proven kernel that did not win; may be empty. Winners: see Variant.
  std::string verification, timing;
  std::vector<Variant> variants;  // the first whose contract holds is served; none: negative
  std::string checksum;           // 32 digits, of the stored bytes; empty if not decoded

  bool has_kernel() const { return !variants.empty(); }
  // "winner" or "negative".
  std::string_view kind() const { return has_kernel() ? "winner" : "negative"; }
  // Returns the variant for these sizes, or null.
  const Variant* For(const std::map<std::string, int64_t>& symbols = {}) const;
  // The race of the first variant; of a negative record its own.
  const std::string& race() const { return has_kernel() ? variants[0].timing : timing; }

  // Returns {"signature", "verification", "timing", "provenance", "versions", "variants":
  // [{"verification", "timing", "contract"}]}, checked against FORMAT.md. Verification and timing
  // of a winner are the first variant's. kInvalidArgument names a bad field.
  Result<Json> Fields() const;
  // Sets the first five from the members of an object; a missing one becomes null. Errors as
  // Fields'.
  Status SetFields(const Json& object);

  // kInvalidArgument: an invalid arch. kCorruption: the key is not the signature's.
  Status CheckIdentity() const;
  // Checks that this may be stored: CheckIdentity(), Fields(), and a candidate and a binary in each
  // variant. kInvalidArgument says what is wrong.
  Status Validate() const;
  // The lower bound of the speed-up; 0 if race() has none.
  double SpeedupLow() const;
  // What the kernel of For({}) may serve, by its measurements; nothing if there is no kernel.
  Served Serves() const;
  // Returns true if it is doubtful and less than a day old.
  bool RecentlyDoubtful() const;
  // Returns true for a negative record whose search ran out of time (`out_of_time` of
  // `provenance`). More time might find a kernel.
  bool RanOutOfTime() const;

  std::string Encode() const;
  // Parses untrusted bytes and checks them as Validate does, except the contents of the JSON texts.
  // kCorruption: wrong magic, length or checksum, an earlier format, or a key that is not the
  // signature's. kUnsupported: a newer format.
  static Result<CacheRecord> Decode(std::string_view bytes);
  // Returns true if the bytes are a record of an earlier format, which is not readable.
  static bool IsEarlier(std::string_view bytes);
};

// Returns true if torch and verifier are equal in both (CacheRecord::versions), and device and
// cuBLASLt do not differ.
bool JudgedAlike(const Json& versions, const Json& others);

// The last 16 bytes of a record: the XXH3-128 of all bytes before.
std::string RecordChecksum(std::string_view bytes);

// "cuda:sm_90a": 1 to 64 characters out of letters, digits and "_-.:+".
bool IsArchName(std::string_view arch);

}  // namespace cudaforge
