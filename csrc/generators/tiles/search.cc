#include "generators/tiles/search.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "generators/tiles/contraction.h"
#include "generators/tiles/product_f32.h"

namespace cudaforge::tiles {
namespace {

// Tries all of its few candidates.
class ProductSearch : public CandidateSearch {
 public:
  ProductSearch(Contraction contraction, int64_t multiprocessors)
      : contraction_(std::move(contraction)),
        multiprocessors_(multiprocessors),
        parts_(F32Schedules(contraction_, multiprocessors)) {}

  std::optional<Candidate> Next() override {
    if (next_ == parts_.size()) return std::nullopt;
    return WriteF32(contraction_, parts_[next_++], multiprocessors_);
  }
  void Tell(size_t, const SearchFeedback&) override {}

 private:
  const Contraction contraction_;
  const int64_t multiprocessors_;
  const std::vector<int64_t> parts_;
  size_t next_ = 0;
};

Result<Contraction> ReadSupported(const OpSignature& signature, std::string_view target) {
  CF_ASSIGN_OR_RETURN(Contraction contraction, ReadContraction(signature));
  if (target != kProductTarget || signature.device != DeviceType::kCuda) {
    return Status::Unsupported("no product kernel: made for " + std::string(kProductTarget) +
                               " alone");
  }
  // tiles/product_half.h has kernels. None was faster than cuBLAS so far, and a search takes
  // seconds.
  if (contraction.a.dtype != DType::kFloat32)
    return Status::Unsupported("no product kernel: cuBLAS is as fast in half types");
  CF_RETURN_IF_ERROR(CanMakeF32(contraction));
  return contraction;
}

}  // namespace

Status CanGenerateProduct(const OpSignature& signature, std::string_view target) {
  return ReadSupported(signature, target).status();
}

Result<std::unique_ptr<CandidateSearch>> MakeProductSearch(const OpSignature& signature,
                                                           const DeviceArch& arch) {
  CF_ASSIGN_OR_RETURN(Contraction contraction, ReadSupported(signature, arch.target));
  CF_RETURN_IF_ERROR(KnowsMultiprocessors(arch));
  return std::unique_ptr<CandidateSearch>(
      std::make_unique<ProductSearch>(std::move(contraction), *arch.multiprocessors));
}

}  // namespace cudaforge::tiles
