// The real worker and compiler on the CPU, with the test's own reference.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "target/target.h"
#include "verify/device_memory.h"
#include "verify/region_reference.h"
#include "verify/worker_region_verifier.h"
#include "worker/worker_client.h"

namespace cudaforge {

// Sets of one tensor, which all inputs are, and one output that a function checks.
class HostSets : public RegionReference {
 public:
  using IsRight = std::function<bool(size_t set, const float* output)>;
  HostSets(std::vector<std::vector<float>> sets, IsRight is_right)
      : sets_(std::move(sets)), is_right_(std::move(is_right)) {}
  size_t set_count() const override { return sets_.size(); }
  std::string set_name(size_t set) const override { return "set" + std::to_string(set); }
  Status Draw(size_t set, std::span<void* const> inputs) override {
    for (void* input : inputs) {
      std::memcpy(input, sets_[set].data(), sets_[set].size() * sizeof(float));
    }
    return Status::Ok();
  }
  Result<Verdict> Check(size_t set, std::span<void* const>,
                        std::span<void* const> outputs) override {
    if (is_right_(set, static_cast<const float*>(outputs[0]))) return Verdict();
    return Verdict{VerdictKind::kWrongValues, "output 0 is wrong", Json::object()};
  }
  Json Report() const override { return Json::object(); }

 private:
  const std::vector<std::vector<float>> sets_;
  const IsRight is_right_;
};

struct RealWorker {
  RealWorker(const OpSignature& region, RegionReference& reference)
      : target(MakeCpuTarget().value()),
        worker(Options()),
        verifier(
            WorkerRegionVerifier::Create(region, *target, *memory, worker, reference, 1).value()) {}

  static WorkerOptions Options() {
    WorkerOptions options;
    options.executable = std::string(CUDAFORGE_BINARY_DIR) + "/cudaforge-worker";
    return options;
  }

  std::unique_ptr<Target> target;
  std::unique_ptr<DeviceMemory> memory = MakeCpuMemory();
  WorkerClient worker;
  std::unique_ptr<WorkerRegionVerifier> verifier;
};

}  // namespace cudaforge
