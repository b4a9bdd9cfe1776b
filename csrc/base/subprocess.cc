#include "base/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "base/sigpipe.h"
#include "base/text.h"

extern char** environ;

namespace cudaforge {
namespace {

using Clock = std::chrono::steady_clock;

// posix_spawn's two argument objects, destroyed together.
struct SpawnSettings {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  SpawnSettings() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    // A separate process group, so that a kill reaches grandchildren; default signals.
    posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes, 0);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    sigset_t all;
    sigfillset(&all);
    posix_spawnattr_setsigdefault(&attributes, &all);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
};

// The null-terminated array that exec takes; it points into `texts`.
std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// This process's environment with `changes`, as lines NAME=VALUE.
std::vector<std::string> ChangedEnvironment(const std::map<std::string, std::string>& changes) {
  std::vector<std::string> lines;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view line = *entry;
    if (!changes.contains(std::string(line.substr(0, line.find('='))))) lines.emplace_back(line);
  }
  for (const auto& [name, value] : changes) lines.push_back(name + "=" + value);
  return lines;
}

Result<pid_t> Spawn(const std::vector<std::string>& argv, SpawnSettings& settings,
                    const std::map<std::string, std::string>& changes = {}) {
  if (argv.empty()) return Status::InvalidArgument("no program to run");
  const std::vector<std::string> environment = ChangedEnvironment(changes);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, argv[0].c_str(), &settings.actions, &settings.attributes,
                                 Pointers(argv).data(), Pointers(environment).data());
  if (error != 0) {
    return Status::Unavailable("cannot start " + argv[0] + ": " + std::strerror(error));
  }
  return pid;
}

int MillisecondsUntil(Clock::time_point deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, INT32_MAX));
}

// Returns true when the child has ended; `status` is waitpid's. Never blocks past the deadline.
bool WaitUntil(pid_t pid, Clock::time_point deadline, int* status) {
  while (true) {
    const pid_t got = waitpid(pid, status, WNOHANG);
    if (got == pid || (got < 0 && errno != EINTR)) return true;
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Makes a pipe with both ends close-on-exec; our end is non-blocking.
Status MakePipe(UniqueFd* reader, UniqueFd* writer, bool we_read) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus("pipe", errno);
  *reader = UniqueFd(ends[0]);
  *writer = UniqueFd(ends[1]);
  if (fcntl(we_read ? ends[0] : ends[1], F_SETFL, O_NONBLOCK) != 0) {
    return ErrnoStatus("fcntl", errno);
  }
  return Status::Ok();
}

// The parent's ends of a child's three pipes, each closed when finished.
class ChildPipes {
 public:
  ChildPipes(UniqueFd in, UniqueFd out, UniqueFd err, std::string_view input)
      : in_(std::move(in)), out_(std::move(out)), err_(std::move(err)), input_(input) {
    if (input_.empty()) in_.Reset();
  }
  bool open() const { return out_.valid() || err_.valid(); }
  // Waits until a pipe is ready, at most `timeout_ms`.
  void Wait(int timeout_ms) const {
    // poll ignores negative descriptors.
    pollfd fds[3] = {{in_.get(), POLLOUT, 0}, {out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}};
    poll(fds, 3, timeout_ms);
  }
  // Transfers what is ready: at most one chunk per pipe, so that limits are checked in between.
  // Returns true if something was read.
  bool Move(const ProcessOptions& options, ProcessResult* result) {
    Write();
    char chunk[1 << 14];
    const ssize_t out = Read(out_, chunk, sizeof(chunk));
    if (out > 0) {
      const size_t room = options.max_output - result->output.size();
      result->output.append(chunk, std::min(room, static_cast<size_t>(out)));
      result->too_large = result->too_large || static_cast<size_t>(out) > room;
    }
    const ssize_t err = Read(err_, chunk, sizeof(chunk));
    if (err > 0) {
      std::string& errors = result->errors;
      errors.append(chunk, static_cast<size_t>(err));
      if (errors.size() > options.keep_errors) errors.erase(0, errors.size() - options.keep_errors);
    }
    return out > 0 || err > 0;
  }

 private:
  void Write() {
    if (!in_.valid()) return;
    const SigpipeBlock block;
    const ssize_t n = write(in_.get(), input_.data(), input_.size());
    if (n > 0) input_.remove_prefix(static_cast<size_t>(n));
    if (input_.empty() || (n < 0 && errno != EAGAIN && errno != EINTR)) in_.Reset();
  }
  static ssize_t Read(UniqueFd& fd, char* chunk, size_t size) {
    if (!fd.valid()) return 0;
    const ssize_t n = read(fd.get(), chunk, size);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) fd.Reset();
    return n;
  }

  UniqueFd in_, out_, err_;
  std::string_view input_;
};

constexpr int kLookMs = 20;  // polling interval for the child's end, deadline and cancellation

bool IsExecutable(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

}  // namespace

bool IsProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) return IsExecutable(name);
  const char* variable = std::getenv("PATH");
  for (const std::string_view folder :
       Split(variable != nullptr ? variable : "/bin:/usr/bin", ':')) {
    if (IsExecutable(std::string(folder.empty() ? "." : folder) + "/" + name)) return true;
  }
  return false;
}

Result<ProcessResult> RunProcess(const std::vector<std::string>& argv,
                                 const ProcessOptions& options) {
  UniqueFd child_in, in, out, child_out, err, child_err;
  CF_RETURN_IF_ERROR(MakePipe(&child_in, &in, /*we_read=*/false));
  CF_RETURN_IF_ERROR(MakePipe(&out, &child_out, /*we_read=*/true));
  CF_RETURN_IF_ERROR(MakePipe(&err, &child_err, /*we_read=*/true));
  SpawnSettings settings;
  posix_spawn_file_actions_adddup2(&settings.actions, child_in.get(), 0);
  posix_spawn_file_actions_adddup2(&settings.actions, child_out.get(), 1);
  posix_spawn_file_actions_adddup2(&settings.actions,
                                   (options.join_errors ? child_out : child_err).get(), 2);
  CF_ASSIGN_OR_RETURN(const pid_t pid, Spawn(argv, settings));
  child_in.Reset();
  child_out.Reset();
  child_err.Reset();

  const auto deadline = Clock::now() + std::chrono::milliseconds(options.timeout_ms);
  ChildPipes pipes(std::move(in), std::move(out), std::move(err), options.input);
  ProcessResult result;
  int status = 0;
  bool ended = false;
  while (!ended && !result.too_large) {
    result.cancelled = options.cancel != nullptr && options.cancel->IsSet();
    result.timed_out = !result.cancelled && Clock::now() >= deadline;
    if (result.cancelled || result.timed_out) break;
    pipes.Wait(std::min(kLookMs, MillisecondsUntil(deadline)));
    pipes.Move(options, &result);
    const pid_t got = waitpid(pid, &status, WNOHANG);
    ended = got == pid || (got < 0 && errno != EINTR);
    // Only its end is missing.
    if (!ended && !pipes.open()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  kill(-pid, SIGKILL);
  while (!ended && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  // Output from before its end. A process that left its group could write for ever.
  while (pipes.open() && !result.too_large && Clock::now() < deadline) {
    if (!pipes.Move(options, &result)) break;
  }
  if (WIFSIGNALED(status)) {
    result.term_signal = WTERMSIG(status);
  } else if (WIFEXITED(status)) {
    result.exit_code = WEXITSTATUS(status);
  }
  return result;
}

bool HasChildSocket() {
  int type = 0;
  socklen_t size = sizeof(type);
  return getsockopt(kChildSocket, SOL_SOCKET, SO_TYPE, &type, &size) == 0;
}

Result<ChildProcess> ChildProcess::Start(const std::vector<std::string>& argv,
                                         const std::map<std::string, std::string>& environment) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return ErrnoStatus("socketpair", errno);
  }
  UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  SpawnSettings settings;
  posix_spawn_file_actions_addopen(&settings.actions, 0, "/dev/null", O_RDONLY, 0);
  if (theirs.get() == kChildSocket) {
    // dup2 onto itself would leave close-on-exec set.
    theirs = UniqueFd(fcntl(theirs.get(), F_DUPFD_CLOEXEC, 10));
  }
  posix_spawn_file_actions_adddup2(&settings.actions, theirs.get(), kChildSocket);
  CF_ASSIGN_OR_RETURN(const pid_t pid, Spawn(argv, settings, environment));
  return ChildProcess(pid, std::move(ours));
}

std::string ProcessEnd::ToString() const {
  if (signal == 0) return "exit code " + std::to_string(exit_code);
  return "signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
}

ProcessEnd ChildProcess::Kill() { return WaitOrKill(0); }

ProcessEnd ChildProcess::WaitOrKill(int timeout_ms) {
  if (pid_ < 0) return end_;
  int status = 0;
  const bool ended = WaitUntil(pid_, Clock::now() + std::chrono::milliseconds(timeout_ms), &status);
  kill(-pid_, SIGKILL);
  if (!ended) {
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }
  if (WIFSIGNALED(status)) {
    end_.signal = WTERMSIG(status);
  } else {
    end_.exit_code = WEXITSTATUS(status);
  }
  pid_ = -1;
  socket_.Reset();
  return end_;
}

ChildProcess::~ChildProcess() { Kill(); }

}  // namespace cudaforge
