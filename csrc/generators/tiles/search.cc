#include "generators/tiles/search.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "generators/tiles/contraction.h"
#include "generators/tiles/product_f32.h"
#include "generators/tiles/product_few.h"

namespace cudaforge::tiles {
namespace {

struct Choice {
  Candidate (*write)(const Contraction&, int64_t parts, int64_t multiprocessors);
  int64_t parts;
};

// The best guess first.
std::vector<Choice> ChoicesFor(const Contraction& c, int64_t multiprocessors) {
  std::vector<Choice> choices;
  if (CanMakeFew(c).ok()) {
    for (int64_t parts : FewSchedules(c, multiprocessors)) choices.push_back({WriteFew, parts});
  }
  const size_t few = choices.size();
  if (CanMakeF32(c).ok()) {
    for (int64_t parts : F32Schedules(c, multiprocessors)) choices.push_back({WriteF32, parts});
    if (few > 0) choices.resize(few + 1);  // it is seldom faster then
  }
  return choices;
}

// Tries all of its few candidates.
class ProductSearch : public CandidateSearch {
 public:
  ProductSearch(Contraction contraction, int64_t multiprocessors)
      : contraction_(std::move(contraction)),
        multiprocessors_(multiprocessors),
        choices_(ChoicesFor(contraction_, multiprocessors)) {}

  std::optional<Candidate> Next() override {
    if (next_ == choices_.size()) return std::nullopt;
    const Choice& choice = choices_[next_++];
    return choice.write(contraction_, choice.parts, multiprocessors_);
  }
  void Tell(size_t, const SearchFeedback&) override {}

 private:
  const Contraction contraction_;
  const int64_t multiprocessors_;
  const std::vector<Choice> choices_;
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
  if (!CanMakeFew(contraction).ok()) CF_RETURN_IF_ERROR(CanMakeF32(contraction));
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
