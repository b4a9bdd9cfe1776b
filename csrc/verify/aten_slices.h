// Runs slices of a region in ATen: the inputs are cut by a Selection, on their device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "signature/aten_pch.h"
#include "signature/from_aten_region.h"
#include "verify/slice_plan.h"

namespace cudaforge {

// A region reduced to some places of its axes. Throws what ATen throws. Returns the output as a
// row-major vector; functions named "All" return every output of the signature, in its sizes. Not
// thread-safe.
class CutRegion {
 public:
  // `inputs`: the region's whole inputs, in the signature's sizes and strides. `sums`: the values
  // of its large sums (large_sums.h). Both are kept alive. kUnsupported: ATen has no such calls (a
  // view among them).
  static Result<CutRegion> Make(const RegionAxes& region, Selection selection,
                                std::span<const at::Tensor> inputs,
                                std::span<const at::Tensor> sums = {});

  // The float64 answer.
  at::Tensor Float64() const { return AllFloat64()[0].reshape(-1); }
  std::vector<at::Tensor> AllFloat64() const { return program_->RunFp64(inputs_); }
  // The same after moving each floating input up or down by a rounding unit at random, equally in
  // all uses: perturbation number `move` < 24 of the seed.
  at::Tensor Float64Perturbed(uint64_t seed, int move) {
    return AllFloat64Perturbed(seed, move)[0].reshape(-1);
  }
  std::vector<at::Tensor> AllFloat64Perturbed(uint64_t seed, int move);
  // ATen's answer in the region's dtypes.
  at::Tensor Aten(const RegionProgram::Instead& instead = {}) const {
    return AllAten(instead)[0].reshape(-1);
  }
  std::vector<at::Tensor> AllAten(const RegionProgram::Instead& instead = {}) const {
    return program_->RunWith(inputs_, instead);
  }
  // The same with the terms of every sum in a random order.
  Result<at::Tensor> AtenPermuted(uint64_t seed) const;
  bool CanPermute() const;
  const OpSignature& signature() const { return program_->signature(); }

 private:
  const at::Tensor& Whole(size_t i) const {  // input i of the cut region, uncut
    const int from = region_->input_of[i];
    return IsSum(from) ? sums_[SumOf(from)] : whole_[static_cast<size_t>(from)];
  }

  const RegionAxes* region_ = nullptr;
  Selection selection_;
  std::vector<at::Tensor> whole_;  // the region's inputs
  std::vector<at::Tensor> sums_;
  std::vector<at::Tensor> inputs_;  // cut; then masks
  // For perturbations, by input: random bits of seed bits_of_, and rounding units.
  uint64_t bits_of_ = 0;
  std::vector<at::Tensor> bits_, units_;
  std::shared_ptr<const RegionProgram> program_;
};

// Returns the selected elements of a tensor with these dimensions and strides: offsets from its
// first element. int64, of the dimensions' sizes.
at::Tensor PlacesOf(const RegionAxes& region, const RegionAxes::Dims& dims,
                    std::span<const int64_t> strides, const Selection& selection,
                    at::Device device);

// Returns the elements of `tensor` at these offsets from its first element, in the sizes of
// `places`.
at::Tensor TakePlaces(const at::Tensor& tensor, const at::Tensor& places);

// Converts row-major indices to offsets in memory.
std::vector<int64_t> PlacesOfElements(const TensorSpec& spec, std::span<const int64_t> elements);

}  // namespace cudaforge
