// Child processes by posix_spawn (never fork: the host process has threads, CUDA and RocksDB).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.h"
#include "base/file.h"
#include "base/status.h"

namespace cudaforge {

struct ProcessOptions {
  std::string_view input = {};  // its standard input, which it may leave unread
  int timeout_ms = 60'000;
  bool join_errors = false;             // standard error goes to `output` as well
  size_t max_output = size_t{1} << 20;  // bytes of output; one more and it is killed
  size_t keep_errors = 4096;            // how much of standard error's end is kept, in bytes
  const Cancel* cancel = nullptr;       // not owned; set: killed within 0.1 s
};

struct ProcessResult {
  int exit_code = -1;      // valid when term_signal == 0
  int term_signal = 0;     // the signal that ended it, else 0
  bool timed_out = false;  // these three: killed by us, and why
  bool cancelled = false;
  bool too_large = false;
  std::string output;  // standard output, at most max_output bytes
  std::string errors;  // the last bytes of standard error
};

// Whether there is a plain file that may be executed: `name` itself where it has a slash, else in a
// folder of PATH, as execvp looks for it.
bool IsProgram(const std::string& name);

// Runs argv[0] (looked up on PATH) to its end. Its own process group, killed with SIGKILL at any
// limit, and when it has ended, with whatever it left running. Errors: kUnavailable when it cannot
// be started.
Result<ProcessResult> RunProcess(const std::vector<std::string>& argv,
                                 const ProcessOptions& options = {});

// How a process ended.
struct ProcessEnd {
  int signal = 0;  // the one that ended it, else 0
  int exit_code = 0;
  std::string ToString() const;  // "exit code 3", "signal 11 (Segmentation fault)"
};

// In a program that ChildProcess started: the descriptor of its end of the socket, and whether a
// socket is there. False: it was started otherwise.
inline constexpr int kChildSocket = 3;
bool HasChildSocket();

// A child that is spoken to over one socket, killed (SIGKILL, whole process group) by the
// destructor.
class ChildProcess {
 public:
  // Starts argv[0] with one end of a SOCK_STREAM Unix socket pair as its descriptor kChildSocket.
  // `environment`: name to value, over what it inherits.
  static Result<ChildProcess> Start(const std::vector<std::string>& argv,
                                    const std::map<std::string, std::string>& environment = {});
  ChildProcess(ChildProcess&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), socket_(std::move(other.socket_)) {}
  ChildProcess& operator=(ChildProcess&&) = delete;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  int socket() const { return socket_.get(); }
  // Kills and reaps it. Idempotent.
  ProcessEnd Kill();
  // As Kill, but first waits up to timeout_ms for it to end by itself.
  ProcessEnd WaitOrKill(int timeout_ms);

 private:
  ChildProcess(pid_t pid, UniqueFd socket) : pid_(pid), socket_(std::move(socket)) {}
  pid_t pid_;
  UniqueFd socket_;
  ProcessEnd end_;
};

}  // namespace cudaforge
