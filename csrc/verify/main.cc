// cudaforge-verifier: proves kernels for the program at the other end of descriptor 3. It has
// libtorch and no Python; candidates run in its workers alone.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <thread>

#include "base/file.h"
#include "base/subprocess.h"
#include "verify/service.h"

namespace cudaforge {
namespace {

// Ends this process as soon as the program has ended, whatever it is at.
void EndWithProgram() {
  std::thread([] {
    pollfd entry{kChildSocket, POLLRDHUP, 0};
    while (poll(&entry, 1, -1) < 0) continue;
    TempDir::RemoveAll();
    _exit(0);
  }).detach();
}

int Main() {
  if (!HasChildSocket()) {
    std::fputs("cudaforge-verifier is started by CudaForge, with a socket as descriptor 3\n",
               stderr);
    return 2;
  }
  fcntl(kChildSocket, F_SETFD, FD_CLOEXEC);
  EndWithProgram();
  return ServeVerifier(kChildSocket, MakeAtenReference).ok() ? 0 : 1;
}

}  // namespace
}  // namespace cudaforge

int main() { return cudaforge::Main(); }
