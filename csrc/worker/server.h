// The worker's side of the protocol: answers requests until the other side hangs up or the device
// fails.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "signature/op_signature.h"
#include "target/target.h"

namespace cudaforge {

// What the first request asks for.
struct WorkerSetup {
  DeviceType device = DeviceType::kCpu;
  int device_index = 0;
  std::string cxx;
  std::vector<std::string> cuda_search_paths;
  // "cuda:sm_90a": compiles for that and does nothing else, without a device. Empty: does all.
  std::string compiles_for;
};

using TargetFactory = std::function<Result<std::unique_ptr<Target>>(const WorkerSetup&)>;
using CompilerFactory = std::function<Result<std::unique_ptr<Compiler>>(const WorkerSetup&)>;

// Serves one connection. Ok when the other side closed it between two frames, or after an answer
// with "fatal": true; an error when the stream broke or a frame broke the rules. A request that is
// well framed but wrong gets an answer with "error", and the service goes on. Never throws: an
// exception is a failed "compile", else an "error", and fatal.
// `make_compiler`: for a setup with `compiles_for`.
Status ServeWorker(int socket, const TargetFactory& make_target,
                   const CompilerFactory& make_compiler);

}  // namespace cudaforge
