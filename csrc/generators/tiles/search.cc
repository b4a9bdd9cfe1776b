#include "generators/tiles/search.h"

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "generators/tiles/contraction.h"
#include "generators/tiles/product_f32.h"
#include "generators/tiles/product_few.h"
#include "generators/tiles/product_half.h"
#include "generators/tiles/product_mma.h"

namespace cudaforge::tiles {
namespace {

// Tries all of its few schedules.
template <class Schedule>
class ProductSearch : public CandidateSearch {
 public:
  using Write = std::function<Candidate(const Contraction&, const Schedule&)>;

  ProductSearch(Contraction contraction, std::vector<Schedule> schedules, Write write)
      : contraction_(std::move(contraction)),
        schedules_(std::move(schedules)),
        write_(std::move(write)) {}

  std::optional<Candidate> Next() override {
    if (next_ == schedules_.size()) return std::nullopt;
    return write_(contraction_, schedules_[next_++]);
  }
  void Tell(size_t, const SearchFeedback&) override {}

 private:
  const Contraction contraction_;
  const std::vector<Schedule> schedules_;
  const Write write_;
  size_t next_ = 0;
};

// Of the two kernels in float32.
struct F32Choice {
  bool few;
  int64_t parts;
};

std::vector<F32Choice> F32Choices(const Contraction& c, int64_t multiprocessors, bool hopper) {
  std::vector<F32Choice> choices;
  if (hopper && c.products() == 1 && CanMakeFew(c).ok()) {
    for (int64_t parts : FewSchedules(c, multiprocessors)) choices.push_back({true, parts});
  }
  const size_t few = choices.size();
  if (CanMakeF32(c).ok()) {
    for (int64_t parts : F32Schedules(c, multiprocessors)) choices.push_back({false, parts});
    if (few > 0) choices.resize(few + 1);  // the best guess: it is seldom faster then
  }
  return choices;
}

template <class Schedule>
std::unique_ptr<CandidateSearch> SearchOf(Contraction contraction, std::vector<Schedule> schedules,
                                          typename ProductSearch<Schedule>::Write write) {
  return std::make_unique<ProductSearch<Schedule>>(std::move(contraction), std::move(schedules),
                                                   std::move(write));
}

bool IsF32(const Contraction& contraction) { return contraction.a.dtype == DType::kFloat32; }

Result<Contraction> ReadSupported(const OpSignature& signature, std::string_view target) {
  CF_ASSIGN_OR_RETURN(Contraction contraction, ReadContraction(signature));
  if (!IsProductTarget(target) || signature.device != DeviceType::kCuda) {
    return Status::Unsupported(
        "no product kernel: made for sm_80, sm_86, sm_89, sm_90a and sm_120");
  }
  const bool hopper = target == kHopperTarget;
  const bool one = contraction.products() == 1;
  if (!one && !IsF32(contraction) && !hopper)
    return Status::NotFound("no product kernel: several products in half types on this GPU");
  if (one && hopper && IsF32(contraction) && CanMakeFew(contraction).ok()) return contraction;
  CF_RETURN_IF_ERROR(IsF32(contraction) ? CanMakeF32(contraction)
                     : hopper           ? CanMakeHalf(contraction)
                                        : CanMakeHalfMma(contraction));
  return contraction;
}

}  // namespace

bool IsProductTarget(std::string_view target) {
  return target == kHopperTarget || IsMmaTarget(target);
}

Status CanGenerateProduct(const OpSignature& signature, std::string_view target) {
  return ReadSupported(signature, target).status();
}

Result<std::unique_ptr<CandidateSearch>> MakeProductSearch(const OpSignature& signature,
                                                           const DeviceArch& arch) {
  CF_ASSIGN_OR_RETURN(Contraction contraction, ReadSupported(signature, arch.target));
  CF_RETURN_IF_ERROR(KnowsMultiprocessors(arch));
  const int64_t multiprocessors = *arch.multiprocessors;
  const MmaDevice device(arch);
  const bool hopper = arch.target == kHopperTarget;
  if (IsF32(contraction)) {
    std::vector<F32Choice> choices = F32Choices(contraction, multiprocessors, hopper);
    return SearchOf<F32Choice>(std::move(contraction), std::move(choices),
                               [=](const Contraction& c, const F32Choice& choice) {
                                 return !hopper      ? WriteF32Mma(c, choice.parts, device)
                                        : choice.few ? WriteFew(c, choice.parts, multiprocessors)
                                                     : WriteF32(c, choice.parts, multiprocessors);
                               });
  }
  if (hopper) {
    std::vector<HalfSchedule> schedules = HalfSchedules(contraction, multiprocessors);
    return SearchOf<HalfSchedule>(std::move(contraction), std::move(schedules),
                                  [=](const Contraction& c, const HalfSchedule& schedule) {
                                    return WriteHalf(c, schedule, multiprocessors);
                                  });
  }
  std::vector<MmaSchedule> schedules = HalfMmaSchedules(contraction, device);
  return SearchOf<MmaSchedule>(std::move(contraction), std::move(schedules),
                               [=](const Contraction& c, const MmaSchedule& schedule) {
                                 return WriteHalfMma(c, schedule, device);
                               });
}

}  // namespace cudaforge::tiles
