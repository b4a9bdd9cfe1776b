// Work in a process forked for it: what it does to its memory, its threads and itself stays there.
#pragma once

#include <functional>

#include "base/json.h"
#include "base/status.h"
#include "base/subprocess.h"
#include "worker/sandbox.h"

namespace cudaforge {

struct ForkedEnd {
  enum class Kind {
    kAnswered,  // it gave one whole answer and ended by itself
    kTimedOut,  // killed by us
    kKilled,    // SIGKILL, not sent by us: the system does that when memory runs out
    kFault,     // it reported a memory fault and ended
    kEnded,     // anything else: `end` says how
  };
  Kind kind = Kind::kEnded;
  Json answer;        // kAnswered; an object
  FaultReport fault;  // kFault
  ProcessEnd end;
};

// Forks. The child calls EnterFork, then `work` with the pipe that the answer goes to. Waits for
// the child's end; its process group is killed after `timeout_ms`. A candidate that `work` runs can
// forge the answer. kUnavailable: no process could be made. REQUIRES: the process has one thread.
Result<ForkedEnd> RunForked(const std::function<Json(int pipe)>& work, int timeout_ms);

}  // namespace cudaforge
