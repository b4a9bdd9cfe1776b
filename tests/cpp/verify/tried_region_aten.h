// A region with its RegionReference on the CPU, and kernels tried on it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/cpp/verify/drawn_aten.h"
#include "tests/cpp/verify/region_aten.h"
#include "verify/aten_region_reference.h"

namespace cudaforge {

// The outputs that a kernel makes of the inputs.
using TriedKernel = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

class TriedRegion {
 public:
  explicit TriedRegion(OpSignature region, uint64_t seed = 11,
                       double seconds = std::numeric_limits<double>::infinity())
      : region_(std::move(region)), memory_(MakeCpuMemory()), inputs_(EmptyInputs(region_)) {
    auto made = MakeAtenRegionReference(region_, 0, *memory_, int64_t{1} << 30, seed);
    status_ = made.status();
    if (!made.ok()) return;
    reference_ = *std::move(made);
    status_ = reference_->Prepare(StorageOf(inputs_), seconds);
    auto program = RegionProgram::Create(region_);
    EXPECT_TRUE(program.ok()) << program.status().ToString();
    if (program.ok()) program_ = *std::move(program);
  }

  const Status& status() const { return status_; }
  const OpSignature& signature() const { return region_; }
  size_t set_count() const { return reference_->set_count(); }
  std::string set_name(size_t set) const { return reference_->set_name(set); }
  Json Report() const { return reference_->Report(); }

  // Set `set`; valid until the next call.
  const std::vector<at::Tensor>& Draw(size_t set) {
    const Status drawn = reference_->Draw(set, StorageOf(inputs_));
    EXPECT_TRUE(drawn.ok()) << drawn.ToString();
    return inputs_;
  }
  std::vector<at::Tensor> Aten() const { return program_->RunStrided(inputs_); }
  // For the set that was drawn last.
  Verdict Check(size_t set, const std::vector<at::Tensor>& outputs) {
    std::vector<at::Tensor> written;
    for (size_t o = 0; o < outputs.size(); ++o) {
      const TensorSpec& spec = region_.output_spec(o);
      written.push_back(
          at::empty_strided(spec.sizes, spec.strides, at::TensorOptions(ToScalarType(spec.dtype))));
      written.back().copy_(outputs[o]);
    }
    const auto verdict = reference_->Check(set, StorageOf(inputs_), StorageOf(written));
    EXPECT_TRUE(verdict.ok()) << verdict.status().ToString();
    return verdict.ok() ? *verdict : Verdict{VerdictKind::kNotJudged, "", Json::object()};
  }
  // The first verdict that is not "accepted", over all sets.
  Verdict Try(const TriedKernel& kernel) {
    for (size_t set = 0; set < set_count(); ++set) {
      Verdict verdict = Check(set, kernel(Draw(set)));
      if (!verdict.accepted()) return verdict;
    }
    return {};
  }

 private:
  const OpSignature region_;
  const std::unique_ptr<DeviceMemory> memory_;
  const std::vector<at::Tensor> inputs_;
  std::unique_ptr<RegionReference> reference_;
  std::unique_ptr<RegionProgram> program_;
  Status status_;
};

}  // namespace cudaforge
