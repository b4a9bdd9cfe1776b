#include "target/cpu/cpu_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "base/integers.h"
#include "target/cpu/cpu_info.h"

namespace cudaforge {
namespace {

Status NoMemoryFor(int64_t bytes) {
  return Status::NoMemory("no memory for " + std::to_string(bytes) + " bytes");
}

// Checked in advance: beyond a cgroup's limit, Linux kills the process instead of refusing pages.
Status Reserve(int fd, int64_t bytes) {
  const Result<int64_t> left = FreeMemoryBytes();
  if (left.ok() && *left < bytes) return NoMemoryFor(bytes);
  while (fallocate(fd, 0, 0, bytes) != 0) {
    if (errno == ENOMEM || errno == ENOSPC) return NoMemoryFor(bytes);
    if (errno != EINTR) return ErrnoStatus("reserving shared memory", errno);
  }
  return Status::Ok();
}

}  // namespace

int64_t PageBytes() { return sysconf(_SC_PAGESIZE); }

Result<SharedMemory> ShareHostMemory(int64_t bytes) {
  CF_CHECK(bytes >= 0) << "shared memory of " << bytes << " bytes";
  const int64_t rounded = RoundUp(std::max(bytes, int64_t{1}), PageBytes());
  CF_ASSIGN_OR_RETURN(UniqueFd fd, MakeMemFile(rounded));
  CF_RETURN_IF_ERROR(Reserve(fd.get(), rounded));
  // Opened a second time: a descriptor's rights are fixed when it is opened, and also limit
  // mprotect.
  const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
  UniqueFd reader(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!reader.valid()) return ErrnoStatus(path, errno);
  CF_ASSIGN_OR_RETURN(DeviceBuffer buffer,
                      MapHostMemory(fd.get(), rounded, /*writable=*/true, /*shift=*/0));
  return SharedMemory(std::move(buffer), std::move(fd), std::move(reader));
}

Result<DeviceBuffer> MapHostMemory(int fd, int64_t bytes, bool writable, int64_t shift) {
  const int seals = fcntl(fd, F_GET_SEALS);
  struct stat facts {};
  CF_CHECK(shift >= 0 && shift < kMapShifts);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &facts) != 0 || bytes <= 0 ||
      facts.st_size != bytes) {
    return Status::Corruption("not shared memory of " + std::to_string(bytes) + " bytes");
  }
  const int64_t shifts = kMapShifts * PageBytes();
  const auto whole = static_cast<size_t>(RoundUp(bytes + 2 * kMapGuardBytes + 2 * shifts, shifts));
  void* const base =
      mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return ErrnoStatus("reserving addresses", errno);
  const auto first = static_cast<int64_t>(reinterpret_cast<uintptr_t>(base)) + kMapGuardBytes;
  void* const data =
      reinterpret_cast<void*>(static_cast<uintptr_t>(RoundUp(first, shifts) + shift * PageBytes()));
  DeviceBuffer buffer(data, bytes, [base, whole](void*) { munmap(base, whole); });
  // Populated, so that timings do not include page faults.
  if (mmap(data, static_cast<size_t>(bytes), writable ? PROT_READ | PROT_WRITE : PROT_READ,
           MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0) == MAP_FAILED) {
    return ErrnoStatus("mapping shared memory", errno);
  }
  return buffer;
}

}  // namespace cudaforge
