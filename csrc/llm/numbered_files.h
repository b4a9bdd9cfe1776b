// A folder of numbered files: 0001-..., 0002-..., in the order of writing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.h"
#include "base/status.h"

namespace cudaforge {

// Writes `bytes` atomically as NNNN + `suffix`, where NNNN (at least four digits) is the next
// number in `folder`. A lock file (".lock") serialises processes. Returns the digits. Errors:
// kIoError, kCancelled; kTimeout: another process kept the lock for half a minute.
Result<std::string> WriteNumbered(const std::string& folder, std::string_view suffix,
                                  std::string_view bytes, const Cancel& cancel);

// Returns the names NNNN + `suffix` in `folder`, by number. Errors: kNotFound, kIoError.
Result<std::vector<std::string>> ListNumbered(const std::string& folder, std::string_view suffix);

}  // namespace cudaforge
