// The worker protocol. Frame: magic "CFW1" (4 bytes), JSON length (u32), number of attached file descriptors (u32), both
// little-endian, then the JSON text. Bulk bytes (inputs, outputs, binaries) travel as memfds attached with SCM_RIGHTS.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"

namespace cudaforge {

inline constexpr int kWorkerProtocol = 1;
inline constexpr uint32_t kMaxFrameBytes = 16u << 20;
inline constexpr uint32_t kMaxFrameFds = 16;

struct Frame {
  Json body;
  std::vector<UniqueFd> fds;
};

// Sends or receives one frame; deadline in milliseconds (negative: none). kTimeout; kIoError when the peer is gone;
// kCorruption for a frame that breaks the rules.
Status SendFrame(int socket, const Frame& frame, int timeout_ms);
Result<Frame> ReceiveFrame(int socket, int timeout_ms);

// An anonymous memory file with these bytes, and back.
Result<UniqueFd> MakeMemFile(std::string_view bytes);
Result<UniqueFd> MakeMemFile(int64_t size);
Result<std::string> ReadMemFile(int fd, int64_t max_bytes);

}  // namespace cudaforge
