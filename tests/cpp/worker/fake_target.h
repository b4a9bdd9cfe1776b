// A Target whose kernels are C++ functions of the test, with configurable errors.
#pragma once

#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "target/cpu/cpu_info.h"
#include "target/cpu/cpu_memory.h"
#include "target/target.h"

namespace cudaforge {

using FakeKernel = std::function<Status(
    std::span<void* const> inputs, std::span<void* const> outputs, std::span<void* const> scratch)>;

class FakeExecutable : public Executable {
 public:
  FakeExecutable(FakeKernel kernel, std::vector<int64_t> scratch) : kernel_(std::move(kernel)) {
    scratch_bytes_ = std::move(scratch);
  }
  Status Launch(std::span<void* const> inputs, std::span<void* const> outputs,
                std::span<void* const> scratch, const LaunchContext&) const override {
    return kernel_(inputs, outputs, scratch);
  }

 private:
  FakeKernel kernel_;
};

class FakeTarget : public Target {
 public:
  FakeKernel kernel;
  std::vector<int64_t> scratch;
  bool poisoned_now = false;

  FakeTarget() { arch_.target = "cpu:fake"; }
  const DeviceArch& arch() const override { return arch_; }
  CompileResult Compile(const KernelSource& source, int) override {
    if (source.code == "throw") throw std::bad_alloc();
    CompileResult result = CompileResult::Failure("log of " + source.code);
    result.ok = source.code != "bad";
    result.binary = "BINARY";
    result.resources = {{"f", {{"registers", 8}}}};
    return result;
  }
  Result<std::unique_ptr<Executable>> Load(const std::string& binary, const Candidate&,
                                           const OpSignature&) override {
    if (binary != "BINARY") return Status::Corruption("no binary");
    return std::unique_ptr<Executable>(std::make_unique<FakeExecutable>(kernel, scratch));
  }
  Result<DeviceBuffer> Allocate(int64_t bytes) override {
    void* data = std::aligned_alloc(256, static_cast<size_t>((bytes + 255) / 256 * 256 + 256));
    return DeviceBuffer(data, bytes, [](void* p) { std::free(p); });
  }
  int64_t granule() const override { return PageBytes(); }
  Result<SharedMemory> Share(int64_t bytes) override { return ShareHostMemory(bytes); }
  Result<DeviceBuffer> Map(int fd, int64_t bytes, bool writable, int64_t shift) override {
    return MapHostMemory(fd, bytes, writable, shift);
  }
  Result<int64_t> FreeBytes() override { return FreeMemoryBytes(); }
  Status CopyIn(void* device, const void* host, int64_t bytes) override {
    std::copy_n(static_cast<const char*>(host), bytes, static_cast<char*>(device));
    return Status::Ok();
  }
  Status CopyOut(void* host, const void* device, int64_t bytes) override {
    std::copy_n(static_cast<const char*>(device), bytes, static_cast<char*>(host));
    return Status::Ok();
  }
  Status Synchronize() override { return Status::Ok(); }
  LaunchContext launch_context() override { return {}; }
  Result<double> TimeWarm(const std::function<Status()>& enqueue,
                          std::span<const WarmBytes>) override {
    CF_RETURN_IF_ERROR(enqueue());
    return static_cast<double>(++timed_ * 10);
  }
  Result<Json> Profile(const Executable& executable, const std::function<Status()>& enqueue,
                       int tier) override {
    for (int i = 0; i < tier; ++i) CF_RETURN_IF_ERROR(enqueue());
    CF_ASSIGN_OR_RETURN(Json kernels, executable.LaunchFacts());
    return Json{{"tier", tier},
                {"passes", 0},
                {"note", "this target has no counters"},
                {"kernels", std::move(kernels)},
                {"metrics", Json::object()}};
  }
  Result<Json> Facts() override {
    if (poisoned_now) return Status::Internal("the device is lost");
    return Json{{"name", "fake"}, {"bandwidth_gb_s", 1.5}};
  }
  bool poisoned() const override { return poisoned_now; }

 private:
  DeviceArch arch_;
  int timed_ = 0;
};

// relu over float32[n], its candidate and signature.
inline OpSignature ReluSignature(int64_t n) {
  OpSignature signature;
  TensorSpec spec{DType::kFloat32, {n}, {1}, 4};
  signature.inputs = {spec};
  signature.nodes.resize(1);
  signature.nodes[0].op = "aten::relu";
  signature.nodes[0].args = Json::array({{{"in", 0}}});
  signature.nodes[0].outputs = {spec};
  signature.nodes[0].outputs[0].alignment = 1;
  signature.outputs = {{0, 0}};
  return signature;
}

inline Candidate CpuCandidate(std::string code, int inputs, std::string range, int64_t row) {
  Candidate candidate;
  candidate.source = {Language::kCpu, std::move(code)};
  Launch launch;
  launch.kernel = "candidate";
  for (int i = 0; i < inputs; ++i) {
    LaunchArg arg;
    arg.kind = LaunchArg::Kind::kInput;
    arg.index = i;
    launch.args.push_back(arg);
  }
  LaunchArg out;
  out.kind = LaunchArg::Kind::kOutput;
  launch.args.push_back(out);
  LaunchArg length;
  length.kind = LaunchArg::Kind::kInt;
  length.expr = row;
  launch.args.push_back(length);
  launch.range = *IntExpr::Parse(range);
  candidate.plan.launches = {launch};
  candidate.author = "test";
  return candidate;
}

}  // namespace cudaforge
