// A folder of files whose names begin with a number: 0001-..., 0002-..., in the order of writing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.h"
#include "base/status.h"

namespace cudaforge {

// Writes `bytes` atomically as NNNN + `suffix`, where NNNN (four digits or more) is one above the
// highest number that a name in `folder` begins with. Processes that write to one folder take turns
// by a lock file in it (".lock"). Returns the number's digits. Errors: kIoError, kCancelled;
// kTimeout when another process keeps the lock for half a minute.
Result<std::string> WriteNumbered(const std::string& folder, std::string_view suffix,
                                  std::string_view bytes, const Cancel& cancel);

// The names in `folder` that are NNNN + `suffix`, by number. Errors: kNotFound, kIoError.
Result<std::vector<std::string>> ListNumbered(const std::string& folder, std::string_view suffix);

}  // namespace cudaforge
