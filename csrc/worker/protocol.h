// The worker protocol; docs/messages.md lists the requests and replies. Frame: magic "CFW1" (4
// bytes), JSON length (u32), number of attached file descriptors (u32), both little-endian, then
// the JSON text. Binaries and memory are descriptors, attached with SCM_RIGHTS to the frame's first
// byte.
#pragma once

#include <cstdint>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/memory_file.h"
#include "base/status.h"

namespace cudaforge {

inline constexpr int kWorkerProtocol = 12;
inline constexpr uint32_t kMaxFrameBytes = 16u << 20;
inline constexpr uint32_t kMaxFrameFds = 16;
inline constexpr int64_t kMaxBinaryBytes = int64_t{256} << 20;

struct Frame {
  Json body;
  std::vector<UniqueFd> fds;
};

// Sends or receives one frame over a SOCK_STREAM Unix socket. `timeout_ms`: for the whole frame
// (negative: none). kTimeout; kIoError: the peer is gone; kCorruption: an invalid frame, after
// which the stream is unusable.
Status SendFrame(int socket, const Frame& frame, int timeout_ms);
Result<Frame> ReceiveFrame(int socket, int timeout_ms);

}  // namespace cudaforge
