#include "base/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <mutex>
#include <utility>

#include "base/parallel.h"

namespace cudaforge {
namespace {

constexpr int64_t kCopyGrain = 8 << 20;

Result<UniqueFd> NewMemFile(int64_t size) {
  UniqueFd fd(memfd_create("cudaforge", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus("memfd_create", errno);
  if (ftruncate(fd.get(), size) != 0) return ErrnoStatus("memory file", errno);
  return fd;
}

// Copies parts of [0, bytes) in several threads; returns the first error.
Status InChunks(int64_t bytes, const std::function<Status(int64_t begin, int64_t end)>& copy) {
  std::mutex mutex;
  Status first;
  ParallelChunks(bytes, kCopyGrain, [&](int64_t, int64_t begin, int64_t end) {
    Status status = copy(begin, end);
    if (status.ok()) return;
    const std::lock_guard lock(mutex);
    if (first.ok()) first = std::move(status);
  });
  return first;
}

Status Seal(int fd, int seals) {
  return fcntl(fd, F_ADD_SEALS, seals) == 0 ? Status::Ok() : ErrnoStatus("sealing", errno);
}

}  // namespace

Result<UniqueFd> MakeMemFile(int64_t size) {
  CF_ASSIGN_OR_RETURN(UniqueFd fd, NewMemFile(size));
  CF_RETURN_IF_ERROR(Seal(fd.get(), F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL));
  return fd;
}

Result<UniqueFd> MakeMemFile(std::string_view bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  CF_ASSIGN_OR_RETURN(UniqueFd fd, NewMemFile(size));
  CF_RETURN_IF_ERROR(WriteMemFileAt(fd.get(), 0, bytes.data(), size));
  CF_RETURN_IF_ERROR(Seal(fd.get(), F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_WRITE | F_SEAL_SEAL));
  return fd;
}

Result<std::string> ReadMemFile(int fd, int64_t max_bytes) {
  struct stat facts {};
  if (fstat(fd, &facts) != 0) return ErrnoStatus("memory file", errno);
  if (!S_ISREG(facts.st_mode)) return Status::Corruption("not a memory file");
  if (facts.st_size < 0 || facts.st_size > max_bytes) {
    return Status::Corruption("a memory file of " + std::to_string(facts.st_size) +
                              " bytes, allowed " + std::to_string(max_bytes));
  }
  std::string bytes(static_cast<size_t>(facts.st_size), '\0');
  CF_RETURN_IF_ERROR(ReadMemFileAt(fd, 0, bytes.data(), facts.st_size));
  return bytes;
}

Status ReadMemFileAt(int fd, int64_t offset, void* data, int64_t bytes) {
  return InChunks(bytes, [&](int64_t begin, int64_t end) -> Status {
    while (begin < end) {
      const ssize_t n = pread(fd, static_cast<char*>(data) + begin,
                              static_cast<size_t>(end - begin), offset + begin);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus("reading a memory file", errno);
      if (n == 0) return Status::Corruption("a memory file is shorter than announced");
      begin += n;
    }
    return Status::Ok();
  });
}

Status WriteMemFileAt(int fd, int64_t offset, const void* data, int64_t bytes) {
  return InChunks(bytes, [&](int64_t begin, int64_t end) -> Status {
    while (begin < end) {
      const ssize_t n = pwrite(fd, static_cast<const char*>(data) + begin,
                               static_cast<size_t>(end - begin), offset + begin);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return ErrnoStatus("writing a memory file", errno);
      begin += n;
    }
    return Status::Ok();
  });
}

Result<UniqueFd> Duplicate(const UniqueFd& fd) {
  UniqueFd copy(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return ErrnoStatus("descriptor", errno);
  return copy;
}

}  // namespace cudaforge
