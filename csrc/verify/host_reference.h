// RegionReference over a RegionChecker, whose sets and answers lie in host memory.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "signature/op_signature.h"
#include "verify/checker.h"
#include "verify/device_memory.h"
#include "verify/region_reference.h"

namespace cudaforge {

class HostReference : public RegionReference {
 public:
  HostReference(OpSignature region, std::unique_ptr<RegionChecker> checker, DeviceMemory& memory)
      : region_(std::move(region)), checker_(std::move(checker)), memory_(memory) {}
  size_t set_count() const override { return checker_->case_count(); }
  std::string set_name(size_t set) const override { return checker_->inputs(set).name; }
  Status Draw(size_t set, std::span<void* const> inputs) override {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const std::string& bytes = checker_->inputs(set).bytes[i];
      CF_RETURN_IF_ERROR(
          memory_.CopyFromHost(inputs[i], bytes.data(), static_cast<int64_t>(bytes.size())));
    }
    return Status::Ok();
  }
  Result<Verdict> Check(size_t set, std::span<void* const>,
                        std::span<void* const> outputs) override {
    std::vector<std::string> bytes;
    for (size_t o = 0; o < outputs.size(); ++o) {
      const int64_t size = region_.output_spec(o).StorageBytes();
      bytes.emplace_back(static_cast<size_t>(size), '\0');
      CF_RETURN_IF_ERROR(memory_.CopyToHost(bytes.back().data(), outputs[o], size));
    }
    return checker_->Check(set, bytes);
  }
  Json Report() const override { return checker_->Report(); }

 private:
  const OpSignature region_;
  const std::unique_ptr<RegionChecker> checker_;
  DeviceMemory& memory_;
};

}  // namespace cudaforge
