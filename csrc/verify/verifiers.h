// Verifiers: the verifier processes of this program, which prove kernels, and the processes that
// compile for them. ATen's answers, the memory of a verification and the workers are theirs: what
// goes wrong there never touches the program's own context or allocator.
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

// Processes that compile for a GPU beside what runs on it, which has two cores for itself; 0 on a
// machine of few cores, and on a CPU, where they would disturb what is timed.
int CompilersOfThisMachine(DeviceType device);

struct VerifierOptions {
  std::string executable;                      // path of cudaforge-verifier
  std::string worker;                          // path of cudaforge-worker
  std::string library_path;                    // folder of libtorch; empty: found without
  std::string cxx;                             // host compiler; empty: the default
  std::vector<std::string> cuda_search_paths;  // may hold libnvrtc and the CUDA headers
  std::function<int(DeviceType)> compilers = CompilersOfThisMachine;  // how many for a device
};

// Thread-safe. Processes that are not in use are kept, at most four. All end with this.
class Verifiers {
 public:
  explicit Verifiers(VerifierOptions options);
  ~Verifiers();
  Verifiers(const Verifiers&) = delete;
  Verifiers& operator=(const Verifiers&) = delete;

  // Starts a process for the device, unless one waits, and does not wait for it to come up.
  void Prepare(DeviceType device, int device_index);
  bool Waits(DeviceType device, int device_index);  // whether one does
  void EndWaiting();
  // For OpenEvaluator. The evaluator holds its process, and must not outlive this. Once `cancel` is
  // set the process ends, within a tenth of a second. kUnavailable: the process cannot be
  // started, or it ended.
  Result<std::unique_ptr<Evaluator>> Open(const OpSignature& region, int device_index,
                                          double seconds, const Cancel* cancel);

  // Begins to compile a candidate for `arch`, which an evaluator of this will be asked about. Where
  // compilers are few nothing.
  void CompileAhead(const Candidate& candidate, DeviceType device, const std::string& arch);

  class Process;

 private:
  Compilers* CompilersFor(DeviceType device);  // nullptr: the verifiers compile
  Result<std::unique_ptr<Process>> Take(DeviceType device, int device_index);
  Result<std::unique_ptr<Process>> Start(DeviceType device, int device_index) const;
  void GiveBack(std::unique_ptr<Process> process);
  friend class RemoteEvaluator;

  const VerifierOptions options_;
  std::mutex mutex_;  // guards what follows
  std::list<std::unique_ptr<Process>> waiting_;
  std::map<DeviceType, std::unique_ptr<Compilers>> compilers_;
};

}  // namespace cudaforge
