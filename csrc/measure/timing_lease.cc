#include "measure/timing_lease.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/text.h"

namespace cudaforge {
namespace {

// A folder in which no other user can put files.
std::optional<std::string> OwnFolder() {
  const char* const wanted = std::getenv("TMPDIR");
  const bool given = wanted != nullptr && *wanted != '\0';
  const std::string folder =
      (given ? wanted : "/tmp") + std::string("/cudaforge-timing-") + std::to_string(geteuid());
  mkdir(folder.c_str(), 0700);
  struct stat found = {};
  const bool own = lstat(folder.c_str(), &found) == 0 && S_ISDIR(found.st_mode) &&
                   found.st_uid == geteuid() && (found.st_mode & 022) == 0;
  return own ? std::optional(folder) : std::nullopt;
}

// A name for the GPU that is the same in all processes, whatever devices they see.
std::string NameOfGpu(int index) {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::string name = std::to_string(index);
  if (visible != nullptr && *visible != '\0') {
    const auto names = Split(visible, ',');
    if (index >= 0 && static_cast<size_t>(index) < names.size()) {
      name = names[static_cast<size_t>(index)];
    }
  }
  std::erase_if(name, [](char c) { return c == '/' || c == ' '; });
  return name;
}

}  // namespace

TimingLease TimingLease::Take(DeviceType device, int device_index, double seconds) {
  TimingLease lease;
  const std::optional<std::string> folder = OwnFolder();
  if (!folder.has_value()) return lease;
  const double began = SteadySeconds();
  const auto take = [&](const std::string& name, FileLock::Kind kind) {
    const double left = std::max(0.0, seconds - (SteadySeconds() - began));
    Result<FileLock> lock =
        FileLock::Acquire(*folder + "/" + name, static_cast<int>(left * 1e3), kind);
    lease.alone_ = lease.alone_ && lock.status().code() != StatusCode::kTimeout;
    if (lock.ok()) lease.locks_.push_back(*std::move(lock));
  };
  const bool gpu = device == DeviceType::kCuda;
  if (gpu) take("gpu-" + NameOfGpu(device_index), FileLock::Kind::kExclusive);
  take("cpu", gpu ? FileLock::Kind::kShared : FileLock::Kind::kExclusive);
  lease.waited_s_ = SteadySeconds() - began;
  return lease;
}

}  // namespace cudaforge
