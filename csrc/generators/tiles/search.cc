#include "generators/tiles/search.h"

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "generators/tiles/contraction.h"
#include "generators/tiles/product_f32.h"
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

constexpr std::string_view kHopper = "cuda:sm_90a";

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
  CF_RETURN_IF_ERROR(IsF32(contraction)  ? CanMakeF32(contraction)
                     : target == kHopper ? CanMakeHalf(contraction)
                                         : CanMakeHalfMma(contraction));
  return contraction;
}

}  // namespace

bool IsProductTarget(std::string_view target) { return target == kHopper || IsMmaTarget(target); }

Status CanGenerateProduct(const OpSignature& signature, std::string_view target) {
  return ReadSupported(signature, target).status();
}

Result<std::unique_ptr<CandidateSearch>> MakeProductSearch(const OpSignature& signature,
                                                           const DeviceArch& arch) {
  CF_ASSIGN_OR_RETURN(Contraction contraction, ReadSupported(signature, arch.target));
  CF_RETURN_IF_ERROR(KnowsMultiprocessors(arch));
  const int64_t multiprocessors = *arch.multiprocessors;
  const MmaDevice device(arch);
  const bool hopper = arch.target == kHopper;
  if (IsF32(contraction)) {
    std::vector<int64_t> parts = F32Schedules(contraction, multiprocessors);
    return SearchOf<int64_t>(
        std::move(contraction), std::move(parts), [=](const Contraction& c, int64_t p) {
          return hopper ? WriteF32(c, p, multiprocessors) : WriteF32Mma(c, p, device);
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
