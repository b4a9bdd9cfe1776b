#include "worker/forked_run.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <exception>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/file.h"

namespace cudaforge {
namespace {

using ForkClock = std::chrono::steady_clock;

constexpr std::string_view kAnswerMagic = "CFAN";
constexpr size_t kAnswerHeader = 8;  // the magic, then the text's length
constexpr size_t kMostAnswerBytes = size_t{1} << 20;
constexpr int kNapUs = 50;

int MillisecondsUntil(ForkClock::time_point end) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(end - ForkClock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, INT32_MAX));
}

[[noreturn]] void Answer(const std::function<Json(int)>& work, int pipe) {
  Json answer;
  try {
    answer = work(pipe);
  } catch (const std::exception& error) {
    answer = {{"ok", false}, {"code", "internal"}, {"error", error.what()}};
  } catch (...) {
    _exit(1);
  }
  const std::string text = LenientText(answer);
  std::string bytes(kAnswerMagic);
  AppendLittleEndian(&bytes, static_cast<uint32_t>(text.size()));
  bytes += text;
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = write(pipe, bytes.data() + sent, bytes.size() - sent);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) _exit(1);
    sent += static_cast<size_t>(n);
  }
  _exit(0);
}

// Reads to the end. Returns false if the time or the buffer ran out.
bool ReadAll(int pipe, ForkClock::time_point deadline, std::string* bytes) {
  char block[4096];
  while (bytes->size() <= kMostAnswerBytes) {
    pollfd entry{pipe, POLLIN, 0};
    const int ready = poll(&entry, 1, MillisecondsUntil(deadline));
    if (ready == 0) return false;
    if (ready < 0) continue;  // EINTR
    const ssize_t n = read(pipe, block, sizeof(block));
    if (n == 0) return true;
    if (n > 0) bytes->append(block, static_cast<size_t>(n));
  }
  return false;
}

// Waits for the process until the deadline. Returns true if it had to be killed.
bool Reap(pid_t pid, ForkClock::time_point deadline, ProcessEnd* end) {
  bool killed = false;
  int status = 0;
  while (waitpid(pid, &status, killed ? 0 : WNOHANG) != pid) {
    if (killed) continue;  // EINTR
    if (ForkClock::now() < deadline) {
      usleep(kNapUs);
      continue;
    }
    killed = true;
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL);  // it has no group of its own yet
  }
  if (WIFSIGNALED(status)) end->signal = WTERMSIG(status);
  if (WIFEXITED(status)) end->exit_code = WEXITSTATUS(status);
  return killed;
}

// Parses `bytes` as one answer; null if they are anything else.
Json ParseAnswer(std::string_view bytes) {
  if (bytes.size() < kAnswerHeader || !bytes.starts_with(kAnswerMagic)) return {};
  const auto size = LittleEndianAt<uint32_t>(bytes, kAnswerMagic.size());
  if (bytes.size() - kAnswerHeader != size) return {};
  auto parsed = ParseJson(bytes.substr(kAnswerHeader), {kMostAnswerBytes, 16});
  if (!parsed.ok() || !parsed->is_object()) return {};
  return *std::move(parsed);
}

}  // namespace

Result<ForkedEnd> RunForked(const std::function<Json(int pipe)>& work, int timeout_ms) {
  const auto deadline = ForkClock::now() + std::chrono::milliseconds(timeout_ms);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus("pipe", errno);
  UniqueFd from(ends[0]), to(ends[1]);
  const pid_t self = getpid();
  const pid_t pid = fork();
  if (pid < 0) return Status::Unavailable("no process could be made to run the candidate in");
  if (pid == 0) {
    EnterFork(to.get(), self);
    Answer(work, to.get());
  }
  to.Reset();
  std::string bytes;
  const bool whole = ReadAll(from.get(), deadline, &bytes);
  const bool too_much = bytes.size() > kMostAnswerBytes;
  ForkedEnd result;
  const bool killed = Reap(pid, too_much ? ForkClock::now() : deadline, &result.end);
  if (killed) {
    result.kind = too_much ? ForkedEnd::Kind::kEnded : ForkedEnd::Kind::kTimedOut;
    return result;
  }
  if (result.end.signal == SIGKILL) {
    result.kind = ForkedEnd::Kind::kKilled;
    return result;
  }
  const Result<FaultReport> fault = ParseFaultReport(bytes);
  if (fault.ok() && result.end.signal == 0 && result.end.exit_code == kFaultExitCode) {
    result.kind = ForkedEnd::Kind::kFault;
    result.fault = *fault;
    return result;
  }
  const bool ended_well = whole && result.end.signal == 0 && result.end.exit_code == 0;
  if (Json answer = ended_well ? ParseAnswer(bytes) : Json(); !answer.is_null()) {
    result.kind = ForkedEnd::Kind::kAnswered;
    result.answer = std::move(answer);
  }
  return result;
}

}  // namespace cudaforge
