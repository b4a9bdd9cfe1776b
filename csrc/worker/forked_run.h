// Work in a process forked for it: what it does to its memory, its threads and itself stays there.
#pragma once

#include <functional>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "base/subprocess.h"
#include "worker/sandbox.h"

namespace cudaforge {

struct ForkedEnd {
  enum class Kind {
    kAnswered,  // it gave one whole answer and ended by itself
    kTimedOut,  // killed by us
    kKilled,    // SIGKILL, and not ours: when memory runs out, the system does that
    kFault,     // it reported a memory fault and ended
    kEnded,     // anything else: `end` says how
  };
  Kind kind = Kind::kEnded;
  Json answer;        // kAnswered; an object
  FaultReport fault;  // kFault
  ProcessEnd end;
};

// Forks, and calls `work` there with the descriptor that its answer will go to, after EnterFork.
// Waits for its end; its process group is killed at the latest after `timeout_ms`. What comes back
// may be of candidate code's making. kUnavailable: no process could be made. To be called from a
// process's only thread.
Result<ForkedEnd> RunForked(const std::function<Json(int pipe)>& work, int timeout_ms);

}  // namespace cudaforge
