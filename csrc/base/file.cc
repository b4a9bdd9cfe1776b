#include "base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>

namespace cudaforge {

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    Reset();
    fd_ = other.Release();
  }
  return *this;
}

void UniqueFd::Reset() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Status ErrnoStatus(std::string_view context, int error_number) {
  std::string message = std::string(context) + ": " + std::strerror(error_number);
  if (error_number == ENOENT) return Status::NotFound(message);
  return error_number == ENOMEM ? Status::NoMemory(message) : Status::IoError(message);
}

namespace {

// All existing ones.
struct TempDirs {
  std::mutex mutex;
  std::set<std::string> paths;
};
TempDirs& AllTempDirs() {
  static auto* const all = new TempDirs;
  return *all;
}

void RemoveFolder(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

Status NoPlainFile(const std::string& path) {
  return Status::InvalidArgument(path + ": not a plain file");
}

}  // namespace

Result<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  // Opening a pipe would wait for its writer.
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return ErrnoStatus(path, errno);
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus(path, errno);
  if (!S_ISREG(info.st_mode)) return NoPlainFile(path);
  std::string bytes;
  char chunk[1 << 16];
  while (true) {
    ssize_t n = read(fd.get(), chunk, sizeof(chunk));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(path, errno);
    if (n == 0) return bytes;
    if (bytes.size() + static_cast<size_t>(n) > max_bytes) {
      return Status::InvalidArgument(path + ": larger than " + std::to_string(max_bytes) +
                                     " bytes");
    }
    bytes.append(chunk, static_cast<size_t>(n));
  }
}

Status WriteFileAtomic(const std::string& given, std::string_view bytes) {
  std::string path = given;
  struct stat info;
  if (stat(path.c_str(), &info) == 0) {
    if (!S_ISREG(info.st_mode)) return NoPlainFile(path);
    std::error_code failed;
    path = std::filesystem::canonical(path, failed).string();
    if (failed) return ErrnoStatus(given, failed.value());
  }
  std::string temporary = path + ".tmp.XXXXXX";
  UniqueFd fd(mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(temporary, errno);
  Status status;
  for (size_t done = 0; done < bytes.size() && status.ok();) {
    ssize_t n = write(fd.get(), bytes.data() + done, bytes.size() - done);
    if (n > 0) done += static_cast<size_t>(n);
    if (n < 0 && errno != EINTR) status = ErrnoStatus(temporary, errno);
  }
  if (status.ok() && fsync(fd.get()) != 0) status = ErrnoStatus(temporary, errno);
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0)
    status = ErrnoStatus(path, errno);
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

Status MakeDirs(const std::string& path) {
  std::string prefix;
  for (const auto& part : std::filesystem::path(path)) {
    prefix = (std::filesystem::path(prefix) / part).string();
    if (mkdir(prefix.c_str(), 0700) == 0 || errno == EEXIST) continue;
    // An existing parent may also give EROFS or EACCES.
    const int error = errno;
    if (!std::filesystem::is_directory(prefix)) return ErrnoStatus(prefix, error);
  }
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return ErrnoStatus(path, errno);
  if (!S_ISDIR(info.st_mode)) return Status::IoError(path + ": is not a folder");
  return Status::Ok();
}

bool PathExists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

std::string AbsolutePath(const std::string& path) {
  std::error_code failed;
  const std::filesystem::path absolute = std::filesystem::absolute(path, failed);
  return failed ? path : absolute.string();
}

Result<TempDir> TempDir::Create(std::string_view prefix) {
  const char* configured = std::getenv("TMPDIR");
  Status fault;
  for (const char* base : {configured, "/tmp"}) {
    if (base == nullptr || *base == '\0') continue;
    std::string path = AbsolutePath(base) + "/" + std::string(prefix) + ".XXXXXX";
    if (mkdtemp(path.data()) != nullptr) return TempDir(path);
    if (fault.ok()) fault = ErrnoStatus(path, errno);
  }
  return fault;
}

TempDir::TempDir(std::string path) : path_(std::move(path)) {
  TempDirs& all = AllTempDirs();
  const std::lock_guard lock(all.mutex);
  all.paths.insert(path_);
}

TempDir::~TempDir() {
  if (path_.empty()) return;
  RemoveFolder(path_);
  TempDirs& all = AllTempDirs();
  const std::lock_guard lock(all.mutex);
  all.paths.erase(path_);
}

void TempDir::RemoveAll() {
  TempDirs& all = AllTempDirs();
  const std::lock_guard lock(all.mutex);
  for (const std::string& path : all.paths) RemoveFolder(path);
  all.paths.clear();
}

Result<FileLock> FileLock::Acquire(const std::string& path, int timeout_ms, Kind kind) {
  const int operation = kind == Kind::kShared ? LOCK_SH : LOCK_EX;
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) return ErrnoStatus(path, errno);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (flock(fd.get(), operation | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return ErrnoStatus(path, errno);
    if (std::chrono::steady_clock::now() >= deadline) {
      return Status::Timeout(path + ": locked by another process for " +
                             std::to_string(timeout_ms) + " ms");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return FileLock(std::move(fd));
}

bool FileLock::IsAt(const std::string& path) const {
  struct stat ours, there;
  return fstat(fd_.get(), &ours) == 0 && stat(path.c_str(), &there) == 0 &&
         ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

FileLock::~FileLock() {
  if (fd_.valid()) flock(fd_.get(), LOCK_UN);
}

}  // namespace cudaforge
