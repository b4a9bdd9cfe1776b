#include "generators/tiles/search.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "generators/tiles/contraction.h"
#include "generators/tiles/product_batch_sm90.h"
#include "generators/tiles/product_f32.h"
#include "generators/tiles/product_few_sm90.h"
#include "generators/tiles/product_half_mma.h"
#include "generators/tiles/product_half_sm90.h"
#include "generators/tiles/units.h"

namespace cudaforge::tiles {
namespace {

using Writer = std::function<Candidate()>;
using Writers = std::vector<Writer>;  // the best guess first

// A kernel of products: whether it can make one, and its schedules.
struct TileKernel {
  bool f32;   // else of half types
  bool sums;  // those of an operand as well
  bool (*runs_on)(std::string_view target);
  Status (*can_make)(const Contraction&);
  Writers (*writers)(const Contraction&, const DeviceArch&);
};

template <class Schedule, class Write>
Writers WritersOf(const Contraction& c, const std::vector<Schedule>& schedules, Write write) {
  Writers writers;
  for (const Schedule& schedule : schedules)
    writers.emplace_back([=] { return write(c, schedule); });
  return writers;
}

bool IsHopper(std::string_view target) { return target == kHopperTarget; }

// Products with few rows are better made one by one, without sums of an operand: the kernel for
// one of them reads its large operand once, without splitting it ahead.
Status CanMakeF32Hopper(const Contraction& c) {
  if (c.products() > 1 || c.operand_sums.has_value()) {
    Contraction one = c;
    one.siblings.clear();
    one.further_epilogues.clear();
    const std::string made = c.products() > 1 ? "several products" : "sums of an operand";
    if (CanMakeFew(one).ok())
      return Status::NotFound("no product kernel: " + made + " with few rows");
  }
  return CanMakeF32(c);
}

Writers WritersOfBatch(const Contraction& c, const DeviceArch& arch) {
  const int64_t n = *arch.multiprocessors;
  return {[=] { return WriteBatch(c, n); }};
}
Writers WritersOfFew(const Contraction& c, const DeviceArch& arch) {
  const int64_t n = *arch.multiprocessors;
  return WritersOf(c, FewSchedules(c, n),
                   [n](const Contraction& x, int64_t parts) { return WriteFew(x, parts, n); });
}
Writers WritersOfF32(const Contraction& c, const DeviceArch& arch) {
  const int64_t n = *arch.multiprocessors;
  return WritersOf(c, F32Schedules(c, n),
                   [n](const Contraction& x, int64_t parts) { return WriteF32(x, parts, n); });
}
Writers WritersOfF32Mma(const Contraction& c, const DeviceArch& arch) {
  const MmaDevice device(arch);
  return WritersOf(
      c, F32Schedules(c, *arch.multiprocessors),
      [device](const Contraction& x, int64_t parts) { return WriteF32Mma(x, parts, device); });
}
Writers WritersOfHalf(const Contraction& c, const DeviceArch& arch) {
  const int64_t n = *arch.multiprocessors;
  return WritersOf(c, HalfSchedules(c, n), [n](const Contraction& x, const HalfSchedule& schedule) {
    return WriteHalf(x, schedule, n);
  });
}
Writers WritersOfHalfMma(const Contraction& c, const DeviceArch& arch) {
  const MmaDevice device(arch);
  return WritersOf(c, HalfMmaSchedules(c, device),
                   [device](const Contraction& x, const MmaSchedule& schedule) {
                     return WriteHalfMma(x, schedule, device);
                   });
}

// In the order in which they are tried. After the first that can make a product, others for the
// same type and GPU have their best guess tried alone: it is seldom faster.
constexpr TileKernel kKernels[] = {
    {true, false, IsHopper, CanMakeFew, WritersOfFew},
    {true, false, IsHopper, CanMakeBatch, WritersOfBatch},
    {true, true, IsHopper, CanMakeF32Hopper, WritersOfF32},
    {true, true, IsMmaTarget, CanMakeF32, WritersOfF32Mma},
    {false, false, IsHopper, CanMakeHalf, WritersOfHalf},
    {false, false, IsMmaTarget, CanMakeHalfMma, WritersOfHalfMma},
};

class ProductSearch : public CandidateSearch {
 public:
  explicit ProductSearch(Writers writers) : writers_(std::move(writers)) {}

  std::optional<Candidate> Next() override {
    if (next_ == writers_.size()) return std::nullopt;
    return writers_[next_++]();
  }
  void Tell(size_t, const SearchFeedback&) override {}

 private:
  const Writers writers_;
  size_t next_ = 0;
};

struct Supported {
  Contraction contraction;
  std::vector<const TileKernel*> kernels;  // not empty
};

Result<Supported> ReadSupported(const OpSignature& signature, std::string_view target) {
  Supported found;
  CF_ASSIGN_OR_RETURN(found.contraction, ReadContraction(signature));
  const Contraction& c = found.contraction;
  if (!IsProductTarget(target) || signature.device != DeviceType::kCuda) {
    return Status::Unsupported(
        "no product kernel: made for sm_80, sm_86, sm_89, sm_90a and sm_120");
  }
  std::vector<Status> refusals;
  for (const TileKernel& kernel : kKernels) {
    if (kernel.f32 != (c.a.dtype == DType::kFloat32) || !kernel.runs_on(target)) continue;
    if (c.operand_sums.has_value() && !kernel.sums) continue;
    const Status can = kernel.can_make(c);
    if (can.ok()) {
      found.kernels.push_back(&kernel);
    } else {
      refusals.push_back(can);
    }
  }
  if (!found.kernels.empty()) return found;
  return HasFewRows(c) ? refusals.front() : refusals.back();
}

}  // namespace

bool IsProductTarget(std::string_view target) { return IsHopper(target) || IsMmaTarget(target); }

Status CanGenerateProduct(const OpSignature& signature, std::string_view target) {
  return ReadSupported(signature, target).status();
}

Result<std::unique_ptr<CandidateSearch>> MakeProductSearch(const OpSignature& signature,
                                                           const DeviceArch& arch) {
  CF_ASSIGN_OR_RETURN(const Supported found, ReadSupported(signature, arch.target));
  CF_RETURN_IF_ERROR(KnowsMultiprocessors(arch));
  Writers writers;
  for (const TileKernel* kernel : found.kernels) {
    Writers of = kernel->writers(found.contraction, arch);
    if (!writers.empty()) of.resize(1);
    writers.insert(writers.end(), of.begin(), of.end());
  }
  return std::unique_ptr<CandidateSearch>(std::make_unique<ProductSearch>(std::move(writers)));
}

}  // namespace cudaforge::tiles
