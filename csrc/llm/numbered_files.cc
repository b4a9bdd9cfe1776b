#include "llm/numbered_files.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/text.h"

namespace cudaforge {
namespace {

constexpr int kLockSlices = 300;  // of kLockSliceMs each
constexpr int kLockSliceMs = 100;
constexpr int64_t kMostNumber = 999'999'999;

// The number at the start of `name`, and its number of digits.
std::optional<std::pair<int64_t, size_t>> LeadingNumber(std::string_view name) {
  const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  const std::optional<int64_t> number = ParseInteger<int64_t>(name.substr(0, digits));
  if (!number.has_value() || digits > 9) return std::nullopt;
  return std::pair(*number, digits);
}

Result<std::vector<std::string>> NamesIn(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> names;
  std::filesystem::directory_iterator it(folder, error);
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) return ErrnoStatus(folder, error.value());
  return names;
}

Result<FileLock> LockFolder(const std::string& folder, const Cancel& cancel) {
  for (int slice = 0; slice < kLockSlices; ++slice) {
    if (cancel.IsSet()) return Status::Cancelled("cancelled while waiting for " + folder);
    Result<FileLock> lock = FileLock::Acquire(folder + "/.lock", kLockSliceMs);
    if (lock.ok() || lock.status().code() != StatusCode::kTimeout) return lock;
  }
  return Status::Timeout(folder + "/.lock: locked by another process");
}

}  // namespace

Result<std::string> WriteNumbered(const std::string& folder, std::string_view suffix,
                                  std::string_view bytes, const Cancel& cancel) {
  CF_ASSIGN_OR_RETURN(const FileLock lock, LockFolder(folder, cancel));
  CF_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(folder));
  int64_t highest = 0;
  for (const std::string& name : names) {
    if (const auto number = LeadingNumber(name)) highest = std::max(highest, number->first);
  }
  if (highest >= kMostNumber) return Status::IoError(folder + ": no number is left");
  std::string digits = std::to_string(highest + 1);
  digits.insert(0, digits.size() < 4 ? 4 - digits.size() : 0, '0');
  CF_RETURN_IF_ERROR(WriteFileAtomic(folder + "/" + digits + std::string(suffix), bytes));
  return digits;
}

Result<std::vector<std::string>> ListNumbered(const std::string& folder, std::string_view suffix) {
  CF_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(folder));
  std::vector<std::pair<int64_t, std::string>> found;
  for (const std::string& name : names) {
    const auto number = LeadingNumber(name);
    if (number && std::string_view(name).substr(number->second) == suffix) {
      found.emplace_back(number->first, name);
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> sorted;
  for (auto& entry : found) sorted.push_back(std::move(entry.second));
  return sorted;
}

}  // namespace cudaforge
