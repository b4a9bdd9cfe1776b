// The worker protocol. Frame: magic "CFW1" (4 bytes), JSON length (u32), number of attached file
// descriptors (u32), both little-endian, then the JSON text. Binaries and memory are descriptors,
// attached with SCM_RIGHTS to the frame's first byte.
//
// A request may carry "id", a random integer, which its reply repeats. A reply without "ok": true
// has "error". "internal": true: one of the worker's own checks failed. "fatal": true: the worker
// exits. Requests and their replies:
//   {"command":"hello","protocol":11,"device":"cpu" or "cuda","device_index":0,"cxx":"",
//    "cuda_search_paths":[],"compiles_for":"cuda:sm_90a" (absent: it does all, not only compile)}
//       -> {"ok":true,"protocol":11,"arch":"cpu:x86-64-v4+1f0c93ab"}
//   {"command":"compile","source":{"language":..,"code":..},"timeout_ms":n}
//       -> {"ok":true,"compiled":b,"log":s,"resources":{} (see CompileResult)}, fds [binary] if
//       compiled
//   {"command":"facts"} -> {"ok":true,"facts":{} (see Target::Facts)}
// Requests on memory that the client owns (launch_server.h). A failed reply may carry "code", a
// name of StatusCodeName. On the CPU "timeout_ms" bounds the forked process; on cuda the client
// kills the worker. LAUNCH: see LaunchRequestToJson.
//   {"command":"map","mapping":id,"bytes":n,"writable":b,"shift":n}, fds [memory] -> {"ok":true}
//   {"command":"unmap","mapping":id} -> {"ok":true}
//   {"command":"load","candidate":{},"signature":{},"timeout_ms":n}, fds [binary]: replaces the
//    loaded kernel
//       -> {"ok":true,"verdict":{},"scratch_bytes":[n]}
//   {"command":"unload"} -> {"ok":true}
//   {"command":"launch","launch":LAUNCH,"timeout_ms":n}
//       -> {"ok":true,"verdict":{}} or, if another process killed the run (the system does, when
//       memory runs out), {"ok":true,"killed":true}
//   {"command":"time","launches":[LAUNCH],"warm_inputs":[i],"samples":n,"least":n,
//    "total_ns":x,"abandon_ns":x,"timeout_ms":n} -> {"ok":true,"nanoseconds":x,"total_ns":x}
//   {"command":"profile","launch":LAUNCH,"tier":n,"timeout_ms":n}
//       -> {"ok":true,"profile":{}}
#pragma once

#include <cstdint>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/memory_file.h"
#include "base/status.h"

namespace cudaforge {

inline constexpr int kWorkerProtocol = 11;
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
