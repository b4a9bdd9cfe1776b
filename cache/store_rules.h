// Which records a KernelStore keeps, and their keys. Private to cache/.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "cache/kernel_store.h"
#include "cache/record.h"

namespace cudaforge {

// KEY (64 characters), a space, ARCH: sorts by key.
std::string StoreKey(std::string_view key, std::string_view arch);

// kInvalidArgument unless `key` is 64 lower-case hexadecimal digits and `arch` an arch's name.
Status CheckStoreKey(std::string_view key, std::string_view arch);

// Returns the bytes of each record, after decoding them as a check. Errors: Validate's, and
// kInvalidArgument for a record over the format's limits.
Result<std::vector<std::string>> StorableBytes(std::span<const CacheRecord> records);

// Returns true if `incoming` replaces `existing` (nullptr: there is none).
bool TakesPlaceOf(const CacheRecord& incoming, const CacheRecord* existing, Stays stays);

}  // namespace cudaforge
