// Verifiers: manages the verifier processes of this program, and the processes that compile for
// them. ATen's answers, verification memory and workers live there, so failures cannot damage the
// program's own context or allocator.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/status.h"
#include "signature/op_signature.h"
#include "verify/evaluator.h"
#include "worker/compilers.h"

namespace cudaforge {

// The number of compiler processes for a GPU, leaving two cores for the process that runs on it. 0
// on a machine with few cores, and for a CPU, where they would disturb timings.
int CompilersOfThisMachine(DeviceType device);

struct VerifierOptions {
  std::string executable;                      // path of cudaforge-verifier
  std::string worker;                          // path of cudaforge-worker
  std::string library_path;                    // folder of libtorch; empty: not needed
  std::string cxx;                             // host compiler; empty: the default
  std::vector<std::string> cuda_search_paths;  // for libnvrtc and the CUDA headers
  std::function<int(DeviceType)> compilers = CompilersOfThisMachine;  // how many for a device
};

// Thread-safe. Keeps at most four idle processes. The destructor ends all.
class Verifiers {
 public:
  explicit Verifiers(VerifierOptions options);
  ~Verifiers();
  Verifiers(const Verifiers&) = delete;
  Verifiers& operator=(const Verifiers&) = delete;

  // Starts a process for the device in the background, unless one is idle.
  void Prepare(DeviceType device, int device_index);
  bool Waits(DeviceType device, int device_index);  // true if one is idle
  void EndWaiting();
  // For OpenEvaluator. The evaluator holds its process, and must not outlive this. The process ends
  // within a tenth of a second after `cancel` is set. kUnavailable: it cannot be started, or it
  // exited.
  Result<std::unique_ptr<Evaluator>> Open(const OpSignature& region, int device_index,
                                          double seconds, const Cancel* cancel);

  // Starts to compile a candidate for `arch`, before an evaluator gets it. Does nothing with few
  // compilers.
  void CompileAhead(const Candidate& candidate, DeviceType device, const std::string& arch);

  class Process;

 private:
  Compilers* CompilersFor(DeviceType device);  // nullptr: the verifiers compile
  Result<std::unique_ptr<Process>> Take(DeviceType device, int device_index);
  Result<std::unique_ptr<Process>> Start(DeviceType device, int device_index) const;
  void GiveBack(std::unique_ptr<Process> process);
  friend class RemoteEvaluator;

  const VerifierOptions options_;
  std::mutex mutex_;  // guards the members below
  std::list<std::unique_ptr<Process>> waiting_;
  std::map<DeviceType, std::unique_ptr<Compilers>> compilers_;
};

}  // namespace cudaforge
