// cudaforge-verifier: proves kernels for the parent process, over descriptor 3. Has libtorch and no
// Python; candidates run only in its workers.
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

// Makes this process end as soon as its parent ends.
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
