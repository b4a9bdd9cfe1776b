// Runs work in a process forked for it, so that its side effects stay there.
#pragma once

#include <functional>

#include "base/json.h"
#include "base/status.h"
#include "base/subprocess.h"
#include "worker/sandbox.h"

namespace cudaforge {

struct ForkedEnd {
  enum class Kind {
    kAnswered,  // one complete answer, then a normal exit
    kTimedOut,  // killed by us
    kKilled,    // SIGKILL by another process: the system sends it when memory runs out
    kFault,     // it reported a memory fault and ended
    kEnded,     // anything else: see `end`
  };
  Kind kind = Kind::kEnded;
  Json answer;        // kAnswered; an object
  FaultReport fault;  // kFault
  ProcessEnd end;
};

// Forks. The child calls EnterFork, then `work` with the pipe for its answer. Waits for the child's
// end; kills its process group after `timeout_ms`. A candidate that `work` runs can forge the
// answer. kUnavailable: fork failed. REQUIRES: the process has one thread.
Result<ForkedEnd> RunForked(const std::function<Json(int pipe)>& work, int timeout_ms);

}  // namespace cudaforge
