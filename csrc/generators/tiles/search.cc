#include "generators/tiles/search.h"

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "generators/tiles/contraction.h"
#include "generators/tiles/product_f32.h"

namespace cudaforge::tiles {
namespace {

// Writes one of a region's candidates.
using Writer = std::function<Candidate(const Contraction&)>;

// Tries all of its few candidates.
class ProductSearch : public CandidateSearch {
 public:
  ProductSearch(Contraction contraction, std::vector<Writer> writers)
      : contraction_(std::move(contraction)), writers_(std::move(writers)) {}

  std::optional<Candidate> Next() override {
    if (next_ == writers_.size()) return std::nullopt;
    return writers_[next_++](contraction_);
  }
  void Tell(size_t, const SearchFeedback&) override {}

 private:
  const Contraction contraction_;
  const std::vector<Writer> writers_;
  size_t next_ = 0;
};

Result<std::vector<Writer>> WritersOf(const Contraction& contraction, int64_t multiprocessors) {
  // tiles/product_half.h has kernels. None was faster than cuBLAS so far, and a search takes
  // seconds.
  if (contraction.a.dtype != DType::kFloat32)
    return Status::Unsupported("no product kernel: cuBLAS is as fast in half types");
  std::vector<Writer> writers;
  CF_ASSIGN_OR_RETURN(const auto schedules, F32Schedules(contraction, multiprocessors));
  for (int64_t parts : schedules)
    writers.emplace_back([=](const Contraction& c) { return WriteF32(c, parts, multiprocessors); });
  return writers;
}

Result<Contraction> ReadSupported(const OpSignature& signature, std::string_view target) {
  CF_ASSIGN_OR_RETURN(Contraction contraction, ReadContraction(signature));
  if (target != kProductTarget || signature.device != DeviceType::kCuda) {
    return Status::Unsupported("no product kernel: made for " + std::string(kProductTarget) +
                               " alone");
  }
  CF_RETURN_IF_ERROR(WritersOf(contraction, 1).status());
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
  CF_ASSIGN_OR_RETURN(std::vector<Writer> writers, WritersOf(contraction, *arch.multiprocessors));
  return std::unique_ptr<CandidateSearch>(
      std::make_unique<ProductSearch>(std::move(contraction), std::move(writers)));
}

}  // namespace cudaforge::tiles
