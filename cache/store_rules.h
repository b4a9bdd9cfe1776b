// Which records a KernelStore keeps, and under which keys. Private to cache/.
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

// kInvalidArgument unless `key` is 64 lower-case hexadecimal digits and `arch` the name of one.
Status CheckStoreKey(std::string_view key, std::string_view arch);

// The bytes of each record, once it is certain that they can be read again. Errors: Validate's, and
// kInvalidArgument for what is larger than the format allows.
Result<std::vector<std::string>> StorableBytes(std::span<const CacheRecord> records);

// Whether `incoming` takes the place of `existing` (nullptr: there is none).
bool TakesPlaceOf(const CacheRecord& incoming, const CacheRecord* existing, Stays stays);

}  // namespace cudaforge
