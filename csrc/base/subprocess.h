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
  std::string_view input = {};  // its standard input; the child need not read it
  int timeout_ms = 60'000;
  bool join_errors = false;             // also append standard error to `output`
  size_t max_output = size_t{1} << 20;  // bytes of output; above it the child is killed
  size_t keep_errors = 4096;            // bytes to keep of standard error's end
  const Cancel* cancel = nullptr;       // not owned; set: killed within 0.1 s
};

struct ProcessResult {
  int exit_code = -1;      // valid if term_signal == 0
  int term_signal = 0;     // the signal that killed it, else 0
  bool timed_out = false;  // these three: we killed it, and why
  bool cancelled = false;
  bool too_large = false;
  std::string output;  // standard output, at most max_output bytes
  std::string errors;  // the last bytes of standard error
};

// Returns true if `name` is an executable plain file: itself if it has a slash, else in a folder of
// PATH, as in execvp.
bool IsProgram(const std::string& name);

// Runs argv[0] (searched on PATH) to its end, in its own process group. The group is killed with
// SIGKILL at any limit, and after the program ended. kUnavailable: it cannot be started.
Result<ProcessResult> RunProcess(const std::vector<std::string>& argv,
                                 const ProcessOptions& options = {});

// How a process ended.
struct ProcessEnd {
  int signal = 0;  // the signal that killed it, else 0
  int exit_code = 0;
  std::string ToString() const;  // "exit code 3", "signal 11 (Segmentation fault)"
};

// In a program started by ChildProcess: the descriptor of its socket, and whether the socket
// exists. False: it was started in another way.
inline constexpr int kChildSocket = 3;
bool HasChildSocket();

// A child process with one socket to it. The destructor kills its process group (SIGKILL).
class ChildProcess {
 public:
  // Starts argv[0] with one end of a SOCK_STREAM Unix socket pair as descriptor kChildSocket.
  // `environment`: name to value, overrides inherited variables.
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
  // As Kill, but first waits up to timeout_ms for it to exit.
  ProcessEnd WaitOrKill(int timeout_ms);

 private:
  ChildProcess(pid_t pid, UniqueFd socket) : pid_(pid), socket_(std::move(socket)) {}
  pid_t pid_;
  UniqueFd socket_;
  ProcessEnd end_;
};

}  // namespace cudaforge
