// The worker's side of the commands on mapped memory (docs/messages.md), from "map" to "profile".
// CPU: this process never runs candidate code. Each request forks a process that loads the kernel,
// enters the sandbox and exits after its answer. So no state survives a run, and memory that a run
// does not name is unmapped. A kernel can falsify its own timing: timings rank, but prove nothing.
// cuda: this process launches, as a context does not survive a fork. It exits after a device error.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "kernel/candidate.h"
#include "signature/op_signature.h"
#include "target/target.h"
#include "worker/launch_buffers.h"
#include "worker/protocol.h"

namespace cudaforge {

struct LaunchReply {
  Json body;
  bool fatal = false;  // the worker exits after it
};

// Not thread-safe. `target` must outlive it.
class LaunchServer {
 public:
  LaunchServer(Target& target, DeviceType device) : target_(target), device_(device) {}

  static bool Knows(std::string_view command);
  // REQUIRES: Knows(command). An error is about the request or this machine.
  Result<LaunchReply> Answer(const std::string& command, const Frame& frame);

 private:
  struct Kernel {
    Candidate candidate;
    OpSignature signature;
    std::string binary;
    std::vector<int64_t> scratch_bytes;
    std::unique_ptr<Executable> executable;  // cuda
    uint64_t scrubs = 0;  // starts at a secret number; each kind occurs in every four runs
  };

  Result<LaunchReply> Map(const Frame& frame);
  Result<LaunchReply> Unmap(const Json& body);
  Result<LaunchReply> Load(const Frame& frame);
  Result<LaunchReply> Launch(const Json& body);
  Result<LaunchReply> Time(const Json& body);
  Result<LaunchReply> Profile(const Json& body);

  bool forks() const { return device_ == DeviceType::kCpu; }
  Result<Verdict> TryLoad(Kernel& kernel, int timeout_ms);
  Result<LaunchBuffers> Buffers(const LaunchRequest& launch) const;
  void KeepOnly(const std::vector<LaunchBuffers>& used) const;
  LaunchReply LaunchHere(const LaunchRequest& launch, const LaunchBuffers& buffers);

  Target& target_;
  DeviceType device_;
  Mappings mappings_;
  std::optional<Kernel> kernel_;
};

}  // namespace cudaforge
