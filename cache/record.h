// CacheRecord: everything about one kernel (or about there being none), stored and checked as one
// unit. The byte format is in FORMAT.md.
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

// The lower bound of a speed-up is above this where a kernel is faster.
inline constexpr double kPromotionBound = 1.03;

// Whose calls a kernel may serve.
struct Served {
  bool compiled = false, eager = false;
};
// The rule, by the fields of a record's timing (FORMAT.md). A rival is beaten where the lower bound
// of the speed-up over it is above kPromotionBound and the kernel's median is below its own.
// It serves
// - compiled graphs where the fastest rival is beaten, also in a race `within` a larger region;
// - eager calls where the region is `one_call` of ATen, and ATen or the fastest rival is beaten.
Served ServedBy(const Json& timing, bool one_call);

// One of a record's kernels. The texts are JSON, see CacheRecord.
struct Variant {
  std::string candidate;     // of Candidate::ToJson()
  std::string binary;        // cubin or shared object
  std::string verification;  // {"report", "cases"}: of the input sets passed; may be empty
  std::string timing;        // of the race; may be empty
  // {SYMBOL: {"min", "max", "multiple"}}: the named sizes for which it was raced. Empty: all.
  Json contract = Json::object();

  // Whether `symbols` has a size within each range of the contract.
  bool Holds(const std::map<std::string, int64_t>& symbols) const;
};

struct CacheRecord {
  static constexpr int kFormat = 4;

  std::string key;   // OpSignature::Key()
  std::string arch;  // DeviceArch::target
  Json versions;     // cudaforge, torch, verifier, and the name of the device it was proven on
  // Seconds since 1970 at which a busy machine measured it, else 0. It is used as it is; a process
  // that forges measures it again, a day later at the earliest.
  int64_t doubtful = 0;
  // JSON texts, parsed where they are used: a process that serves a thousand kernels reads the
  // evidence of none. FORMAT.md has their fields.
  std::string signature;   // OpSignature::Canonical(), whose SHA-256 is the key
  std::string provenance;  // who made it, when, in what time, and why there is no winner; may be
                           // empty
  // Of a kernel that was proven and did not win; may be empty. Those of winners: Variant.
  std::string verification, timing;
  std::vector<Variant> variants;  // the first whose contract holds is served; none: negative
  std::string checksum;           // 32 digits, of the stored bytes; empty where it was not decoded

  bool has_kernel() const { return !variants.empty(); }
  // "winner" or "negative".
  std::string_view kind() const { return has_kernel() ? "winner" : "negative"; }
  // The variant to be served at these sizes, or null.
  const Variant* For(const std::map<std::string, int64_t>& symbols = {}) const;
  // The race of the first variant, of a negative record its own.
  const std::string& race() const { return has_kernel() ? variants[0].timing : timing; }

  // {"signature", "verification", "timing", "provenance", "versions", "variants":
  // [{"verification", "timing", "contract"}]}, in the form that readers rely on (FORMAT.md),
  // whatever may be absent or null; of a winner, verification and timing are the first variant's.
  // kInvalidArgument names the one that has not.
  Result<Json> Fields() const;
  // Takes the first five from the members of an object; one that is absent is null. Errors as
  // Fields'.
  Status SetFields(const Json& object);

  // A plausible arch (else kInvalidArgument) and a key that is the signature's (else kCorruption).
  Status CheckIdentity() const;
  // Whether this may be stored: CheckIdentity(), a candidate and a binary in each variant, and what
  // Fields() asks. kInvalidArgument says what is wrong.
  Status Validate() const;
  // The lower bound of the speed-up; 0 where race() has none.
  double SpeedupLow() const;
  // Who may be served by the kernel of For({}), by what was measured; nobody where there is none.
  Served Serves() const;
  // Whether it is doubtful and less than a day old.
  bool DoubtedLately() const;
  // Whether this is a negative record whose search ran out of time (`out_of_time` of `provenance`):
  // more might find a kernel.
  bool WantsTime() const;

  std::string Encode() const;
  // What Encode made, checked as Validate does but for what is in the JSON texts. kCorruption:
  // wrong magic, length or checksum, an earlier format, or a key that is not the signature's;
  // kUnsupported: a newer format. Safe for hostile bytes.
  static Result<CacheRecord> Decode(std::string_view bytes);
  // Whether the bytes are a record of an earlier format, which no version reads any more.
  static bool IsEarlier(std::string_view bytes);
};

// Whether the same torch and verifier stand in both (CacheRecord::versions), and no two devices.
bool JudgedAlike(const Json& versions, const Json& others);

// What a record ends with: the XXH3-128 of all bytes before, 16 bytes.
std::string RecordChecksum(std::string_view bytes);

// "cuda:sm_90a": 1 to 64 characters out of letters, digits and "_-.:+".
bool IsArchName(std::string_view arch);

}  // namespace cudaforge
