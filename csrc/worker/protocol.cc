#include "worker/protocol.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <mutex>

#include "base/bytes.h"
#include "base/parallel.h"

namespace cudaforge {
namespace {

constexpr std::string_view kMagic = "CFW1";
constexpr size_t kHeaderBytes = 12;
constexpr int kMaxDepth = 32;
constexpr int64_t kCopyGrain = 8 << 20;

class Deadline {
 public:
  explicit Deadline(int timeout_ms)
      : limited_(timeout_ms >= 0),
        end_(std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms)) {}

  // Waits until the socket is ready for `events`.
  Status Wait(int socket, short events) const {
    while (true) {
      int left = -1;
      if (limited_) {
        const auto span = std::chrono::duration_cast<std::chrono::milliseconds>(
            end_ - std::chrono::steady_clock::now());
        left = static_cast<int>(std::clamp<int64_t>(span.count(), 0, INT32_MAX));
      }
      pollfd entry{socket, events, 0};
      const int ready = poll(&entry, 1, left);
      if (ready > 0) return Status::Ok();
      if (ready == 0) return Status::Timeout("no word from the other side in time");
      if (errno != EINTR) return ErrnoStatus("poll", errno);
    }
  }

 private:
  bool limited_;
  std::chrono::steady_clock::time_point end_;
};

using ControlBuffer = std::array<char, CMSG_SPACE(sizeof(int) * kMaxFrameFds)>;

// Sends some of the bytes, with the descriptors attached to the first of them; returns how many.
Result<size_t> SendSome(int socket, std::string_view bytes, const std::vector<UniqueFd>& fds,
                        const Deadline& deadline) {
  alignas(cmsghdr) ControlBuffer control{};
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    for (size_t i = 0; i < fds.size(); ++i) {
      const int fd = fds[i].get();
      std::memcpy(CMSG_DATA(header) + i * sizeof(int), &fd, sizeof(int));
    }
  }
  while (true) {
    const ssize_t n = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0) return static_cast<size_t>(n);
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      CF_RETURN_IF_ERROR(deadline.Wait(socket, POLLOUT));
    } else if (errno != EINTR) {
      return ErrnoStatus("send", errno);
    }
  }
}

// Fills `size` bytes; descriptors that arrive with them are appended to `fds`.
Status ReceiveExactly(int socket, char* to, size_t size, std::vector<UniqueFd>* fds,
                      const Deadline& deadline) {
  while (size > 0) {
    alignas(cmsghdr) ControlBuffer control{};
    iovec part{to, size};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t n = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      CF_RETURN_IF_ERROR(deadline.Wait(socket, POLLIN));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus("receive", errno);
    if (n == 0) return Status::IoError("the other side is gone");
    for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
      if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
      const size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(int));
        fds->emplace_back(fd);
      }
    }
    if ((message.msg_flags & MSG_CTRUNC) != 0 || fds->size() > kMaxFrameFds) {
      return Status::Corruption("more file descriptors than a frame may carry");
    }
    to += n;
    size -= static_cast<size_t>(n);
  }
  return Status::Ok();
}

Result<UniqueFd> NewMemFile(int64_t size) {
  UniqueFd fd(memfd_create("cudaforge", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus("memfd_create", errno);
  if (ftruncate(fd.get(), size) != 0) return ErrnoStatus("memory file", errno);
  return fd;
}

// Copies parts of [0, bytes) in several threads; the first error.
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

Status SendFrame(int socket, const Frame& frame, int timeout_ms) {
  // Text from compilers may be no UTF-8: bad bytes are replaced, not refused.
  const std::string text = LenientText(frame.body);
  if (text.size() > kMaxFrameBytes || frame.fds.size() > kMaxFrameFds) {
    return Status::InvalidArgument("a frame over the limits: " + std::to_string(text.size()) +
                                   " bytes, " + std::to_string(frame.fds.size()) + " descriptors");
  }
  std::string bytes;
  bytes.reserve(kHeaderBytes + text.size());
  bytes += kMagic;
  AppendLittleEndian(&bytes, static_cast<uint32_t>(text.size()));
  AppendLittleEndian(&bytes, static_cast<uint32_t>(frame.fds.size()));
  bytes += text;
  const Deadline deadline(timeout_ms);
  static const std::vector<UniqueFd> kNone;
  size_t sent = 0;
  while (sent < bytes.size()) {
    CF_ASSIGN_OR_RETURN(const size_t n, SendSome(socket, std::string_view(bytes).substr(sent),
                                                 sent == 0 ? frame.fds : kNone, deadline));
    sent += n;
  }
  return Status::Ok();
}

Result<Frame> ReceiveFrame(int socket, int timeout_ms) {
  const Deadline deadline(timeout_ms);
  Frame frame;
  std::string header(kHeaderBytes, '\0');
  CF_RETURN_IF_ERROR(ReceiveExactly(socket, header.data(), header.size(), &frame.fds, deadline));
  if (!header.starts_with(kMagic)) {
    return Status::Corruption("not a frame of the worker protocol");
  }
  const auto size = LittleEndianAt<uint32_t>(header, 4);
  const auto fds = LittleEndianAt<uint32_t>(header, 8);
  if (size > kMaxFrameBytes)
    return Status::Corruption("a frame of " + std::to_string(size) + " bytes");
  if (fds > kMaxFrameFds)
    return Status::Corruption("a frame of " + std::to_string(fds) + " descriptors");
  std::string text(size, '\0');
  CF_RETURN_IF_ERROR(ReceiveExactly(socket, text.data(), text.size(), &frame.fds, deadline));
  if (frame.fds.size() != fds)
    return Status::Corruption("file descriptors are missing or in excess");
  auto body = ParseJson(text, {kMaxFrameBytes, kMaxDepth});
  if (!body.ok()) return Status::Corruption(body.status().message());
  if (!body->is_object()) return Status::Corruption("a frame's text is not an object");
  frame.body = std::move(*body);
  return frame;
}

Result<UniqueFd> MakeMemFile(int64_t size) {
  CF_ASSIGN_OR_RETURN(UniqueFd fd, NewMemFile(size));
  CF_RETURN_IF_ERROR(Seal(fd.get(), F_SEAL_GROW | F_SEAL_SHRINK));
  return fd;
}

Result<UniqueFd> MakeMemFile(std::span<const std::string_view> parts) {
  int64_t size = 0;
  for (std::string_view part : parts) size += static_cast<int64_t>(part.size());
  CF_ASSIGN_OR_RETURN(UniqueFd fd, NewMemFile(size));
  int64_t offset = 0;
  for (std::string_view part : parts) {
    const auto bytes = static_cast<int64_t>(part.size());
    CF_RETURN_IF_ERROR(WriteMemFileAt(fd.get(), offset, part.data(), bytes));
    offset += bytes;
  }
  CF_RETURN_IF_ERROR(Seal(fd.get(), F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_WRITE | F_SEAL_SEAL));
  return fd;
}

Result<UniqueFd> MakeMemFile(std::string_view bytes) {
  return MakeMemFile(std::span<const std::string_view>(&bytes, 1));
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

Result<MemFileMap> MemFileMap::Map(int fd, bool writable) {
  const int seals = fcntl(fd, F_GET_SEALS);
  struct stat facts {};
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &facts) != 0) {
    return Status::Corruption("not a sealed memory file");
  }
  if (facts.st_size == 0) return MemFileMap(nullptr, 0);
  void* data = mmap(nullptr, static_cast<size_t>(facts.st_size),
                    writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return ErrnoStatus("mapping a memory file", errno);
  return MemFileMap(static_cast<char*>(data), facts.st_size);
}

MemFileMap::~MemFileMap() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
}

Result<char*> MemFileMap::At(int64_t offset, int64_t bytes) const {
  if (offset < 0 || bytes < 0 || bytes > bytes_ || offset > bytes_ - bytes) {
    return Status::Corruption("a memory file is shorter than announced");
  }
  return data_ + offset;
}

}  // namespace cudaforge
