#include "generators/tiles/search.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "generators/tiles/contraction.h"
#include "generators/tiles/product_f32.h"
#include "generators/tiles/product_few.h"
#include "generators/tiles/product_half.h"

namespace cudaforge::tiles {
namespace {

// Tries all of its few schedules.
template <class Schedule>
class ProductSearch : public CandidateSearch {
 public:
  using Write = Candidate (*)(const Contraction&, const Schedule&, int64_t multiprocessors);

  ProductSearch(Contraction contraction, std::vector<Schedule> schedules, Write write,
                int64_t multiprocessors)
      : contraction_(std::move(contraction)),
        schedules_(std::move(schedules)),
        write_(write),
        multiprocessors_(multiprocessors) {}

  std::optional<Candidate> Next() override {
    if (next_ == schedules_.size()) return std::nullopt;
    return write_(contraction_, schedules_[next_++], multiprocessors_);
  }
  void Tell(size_t, const SearchFeedback&) override {}

 private:
  const Contraction contraction_;
  const std::vector<Schedule> schedules_;
  const Write write_;
  const int64_t multiprocessors_;
  size_t next_ = 0;
};

// Of the two kernels in float32.
struct F32Choice {
  bool few;
  int64_t parts;
};

std::vector<F32Choice> F32Choices(const Contraction& c, int64_t multiprocessors) {
  std::vector<F32Choice> choices;
  if (CanMakeFew(c).ok()) {
    for (int64_t parts : FewSchedules(c, multiprocessors)) choices.push_back({true, parts});
  }
  const size_t few = choices.size();
  if (CanMakeF32(c).ok()) {
    for (int64_t parts : F32Schedules(c, multiprocessors)) choices.push_back({false, parts});
    if (few > 0) choices.resize(few + 1);  // the best guess: it is seldom faster then
  }
  return choices;
}

Candidate WriteF32Choice(const Contraction& c, const F32Choice& choice, int64_t multiprocessors) {
  return choice.few ? WriteFew(c, choice.parts, multiprocessors)
                    : WriteF32(c, choice.parts, multiprocessors);
}

bool IsF32(const Contraction& contraction) { return contraction.a.dtype == DType::kFloat32; }

Result<Contraction> ReadSupported(const OpSignature& signature, std::string_view target) {
  CF_ASSIGN_OR_RETURN(Contraction contraction, ReadContraction(signature));
  if (target != kProductTarget || signature.device != DeviceType::kCuda) {
    return Status::Unsupported("no product kernel: made for " + std::string(kProductTarget) +
                               " alone");
  }
  if (IsF32(contraction) && contraction.products() > 1)
    return Status::NotFound("no product kernel: several products in float32");
  if (IsF32(contraction) && CanMakeFew(contraction).ok()) return contraction;
  CF_RETURN_IF_ERROR(IsF32(contraction) ? CanMakeF32(contraction) : CanMakeHalf(contraction));
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
  const int64_t multiprocessors = *arch.multiprocessors;
  if (IsF32(contraction)) {
    std::vector<F32Choice> choices = F32Choices(contraction, multiprocessors);
    return std::unique_ptr<CandidateSearch>(std::make_unique<ProductSearch<F32Choice>>(
        std::move(contraction), std::move(choices), &WriteF32Choice, multiprocessors));
  }
  std::vector<HalfSchedule> schedules = HalfSchedules(contraction, multiprocessors);
  return std::unique_ptr<CandidateSearch>(std::make_unique<ProductSearch<HalfSchedule>>(
      std::move(contraction), std::move(schedules), &WriteHalf, multiprocessors));
}

}  // namespace cudaforge::tiles
