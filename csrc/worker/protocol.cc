#include "worker/protocol.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace cudaforge {
namespace {

constexpr std::string_view kMagic = "CFW1";
constexpr size_t kHeaderBytes = 12;
constexpr int kMaxDepth = 32;

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
      if (ready == 0) return Status::Timeout("no message from the other process in time");
      if (errno != EINTR) return ErrnoStatus("poll", errno);
    }
  }

 private:
  bool limited_;
  std::chrono::steady_clock::time_point end_;
};

using ControlBuffer = std::array<char, CMSG_SPACE(sizeof(int) * kMaxFrameFds)>;

// Sends some of the bytes, with the descriptors attached to the first; returns how many.
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

// Receives `size` bytes; appends descriptors that arrive with them to `fds`.
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
    if (n == 0) return Status::IoError("the other process closed the connection");
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

}  // namespace

Status SendFrame(int socket, const Frame& frame, int timeout_ms) {
  // Compilers' text may be invalid UTF-8: bad bytes are replaced, not refused.
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

}  // namespace cudaforge
