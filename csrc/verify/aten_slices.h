// Slices of a region, run by ATen: the inputs cut as a Selection says, on the device where they
// lie.
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

// A region with some places of its axes alone. Its functions throw what ATen throws, and return the
// output in row-major order, one dimension; those named "All" every output of the signature, in its
// sizes. Not thread-safe.
class CutRegion {
 public:
  // `inputs`: the region's, whole, in the signature's sizes and strides; `sums`: the values of its
  // large sums (large_sums.h). Both are kept alive. kUnsupported: ATen has no such calls (a view
  // among them).
  static Result<CutRegion> Make(const RegionAxes& region, Selection selection,
                                std::span<const at::Tensor> inputs,
                                std::span<const at::Tensor> sums = {});

  // The float64 answer.
  at::Tensor Float64() const { return AllFloat64()[0].reshape(-1); }
  std::vector<at::Tensor> AllFloat64() const { return program_->RunFp64(inputs_); }
  // The same after each floating input was moved up or down by a rounding unit at random, the same
  // way wherever it is used: move number `move` < 24 of the seed.
  at::Tensor Float64Moved(uint64_t seed, int move) {
    return AllFloat64Moved(seed, move)[0].reshape(-1);
  }
  std::vector<at::Tensor> AllFloat64Moved(uint64_t seed, int move);
  // ATen's answer in the region's own dtypes.
  at::Tensor Aten(const RegionProgram::Instead& instead = {}) const {
    return AllAten(instead)[0].reshape(-1);
  }
  std::vector<at::Tensor> AllAten(const RegionProgram::Instead& instead = {}) const {
    return program_->RunWith(inputs_, instead);
  }
  // The same with the places of every axis that sums run along in an order drawn by the seed.
  Result<at::Tensor> AtenPermuted(uint64_t seed) const;
  bool CanPermute() const;
  const OpSignature& signature() const { return program_->signature(); }

 private:
  const at::Tensor& Whole(size_t i) const {  // of the cut region's input i
    const int from = region_->input_of[i];
    return IsSum(from) ? sums_[SumOf(from)] : whole_[static_cast<size_t>(from)];
  }

  const RegionAxes* region_ = nullptr;
  Selection selection_;
  std::vector<at::Tensor> whole_;  // the region's inputs
  std::vector<at::Tensor> sums_;
  std::vector<at::Tensor> inputs_;  // cut; then masks
  // For moves, by input: random bits, which are those of a seed, and rounding units.
  uint64_t bits_of_ = 0;
  std::vector<at::Tensor> bits_, units_;
  std::shared_ptr<const RegionProgram> program_;
};

// Where the elements of a tensor of these dimensions and strides are that the selection leaves: in
// elements from its first one. int64, of the dimensions' sizes.
at::Tensor PlacesOf(const RegionAxes& region, const RegionAxes::Dims& dims,
                    std::span<const int64_t> strides, const Selection& selection,
                    at::Device device);

// tensor's elements at these places in memory, counted from its first one; of the places' sizes.
at::Tensor TakePlaces(const at::Tensor& tensor, const at::Tensor& places);

// The places in memory of elements of row-major numbers.
std::vector<int64_t> PlacesOfElements(const TensorSpec& spec, std::span<const int64_t> elements);

}  // namespace cudaforge
