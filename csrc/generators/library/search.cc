#include "generators/library/search.h"

#include <algorithm>
#include <optional>

#include "generators/library/product.h"
#include "generators/tiles/search.h"

namespace cudaforge::library {
namespace {

// A product of fewer multiplications takes less time than its launch.
constexpr int64_t kLeastMultiplications = int64_t{1} << 24;
constexpr int kPlaces = 3;  // tried, and one more for each that is wrong

class LibrarySearch : public CandidateSearch {
 public:
  explicit LibrarySearch(const LibraryProduct& product) : product_(product) {}

  std::optional<Candidate> Next() override {
    if (next_ == last_) return std::nullopt;
    product_.place = next_++;
    Candidate candidate;
    candidate.author = "generator:library";
    candidate.params = {{"place", product_.place}};
    candidate.source = {Language::kLibrary, CanonicalJson(product_.ToJson())};
    return candidate;
  }
  void Tell(size_t, const SearchFeedback& feedback) override {
    if (!feedback.correct) last_ = std::min(last_ + 1, LibraryProduct::kMaxPlace + 1);
  }

 private:
  LibraryProduct product_;
  int next_ = 0;
  int last_ = kPlaces;
};

Result<LibraryProduct> ReadLibraryRegion(const OpSignature& signature, std::string_view target) {
  CF_ASSIGN_OR_RETURN(const LibraryProduct product, ReadLibraryProduct(signature));
  if (!target.starts_with("cuda:")) return Status::Unsupported("no library product: for CUDA only");
  // In floating point, because the product of four sizes may overflow.
  const double multiplications = static_cast<double>(product.m) * static_cast<double>(product.n) *
                                 static_cast<double>(product.k * product.batch);
  if (multiplications < static_cast<double>(kLeastMultiplications))
    return Status::Unsupported("no library product: fewer than 2^24 multiplications");
  // On tensor cores and more accurate: three times as fast as a library's product in float32. The
  // race decides of short sums and small products, and on other GPUs.
  constexpr int64_t kLongSum = 256;
  constexpr double kMany = 1 << 29;
  if (target == tiles::kHopperTarget && product.dtype == DType::kFloat32 && !product.tf32 &&
      product.k >= kLongSum && multiplications >= kMany &&
      tiles::CanGenerateProduct(signature, target).ok()) {
    return Status::Unsupported("no library product: float32 products of our own are faster");
  }
  return product;
}

}  // namespace

Status CanGenerateLibraryProduct(const OpSignature& signature, std::string_view target) {
  return ReadLibraryRegion(signature, target).status();
}

Result<std::unique_ptr<CandidateSearch>> MakeLibrarySearch(const OpSignature& signature,
                                                           const DeviceArch& arch) {
  CF_ASSIGN_OR_RETURN(const LibraryProduct product, ReadLibraryRegion(signature, arch.target));
  return std::unique_ptr<CandidateSearch>(std::make_unique<LibrarySearch>(product));
}

}  // namespace cudaforge::library
