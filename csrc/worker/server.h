// The worker's side of the protocol: answers requests until the client closes or the device fails.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "signature/op_signature.h"
#include "target/target.h"

namespace cudaforge {

// The contents of the first request.
struct WorkerSetup {
  DeviceType device = DeviceType::kCpu;
  int device_index = 0;
  std::string cxx;
  std::vector<std::string> cuda_search_paths;
  // "cuda:sm_90a": only compiles for that, without a device. Empty: does all.
  std::string compiles_for;
};

using TargetFactory = std::function<Result<std::unique_ptr<Target>>(const WorkerSetup&)>;
using CompilerFactory = std::function<Result<std::unique_ptr<Compiler>>(const WorkerSetup&)>;

// Serves one connection. Ok if the client closed it between two frames, or after an answer with
// "fatal": true. An error if the stream broke or a frame was invalid. A well framed but wrong
// request gets an answer with "error". Never throws: an exception fails "compile", and is fatal for
// other commands. `make_compiler`: for a setup with `compiles_for`.
Status ServeWorker(int socket, const TargetFactory& make_target,
                   const CompilerFactory& make_compiler);

}  // namespace cudaforge
