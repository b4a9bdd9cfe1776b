// A test's body in a forked child.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace cudaforge {

// Runs `body` in a forked child and returns its exit status. Returns -1 if fork failed, or the
// child did not exit within 20 s.
inline int InForkedChild(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(20);
    _exit(body());
  }
  int status = 0;
  if (pid < 0 || waitpid(pid, &status, 0) != pid) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace cudaforge
