#include "verify/aten_slice_set.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "verify/aten_orders.h"
#include "verify/aten_slices.h"
#include "verify/elements.h"

namespace cudaforge {
namespace {

// Number of permutations, used for sums that cannot be rewritten.
constexpr int kPermutations = 1;
constexpr int kPermutationsAlone = 14;
constexpr int kFewAlone = 3;
// Bytes of float64 per CPU thread. Threads of many small calls wait for each other, ten times
// longer if other programs use the processors.
constexpr int64_t kBytesOfThread = int64_t{128} << 20;

// While an object lives, ATen uses as many CPU threads as this many bytes justify.
class FewThreads {
 public:
  explicit FewThreads(int64_t bytes) {
    const auto worth = static_cast<int>(std::min<int64_t>(bytes / kBytesOfThread, before_));
    if (worth < before_) at::set_num_threads(std::max(worth, 1));
  }
  FewThreads(const FewThreads&) = delete;
  FewThreads& operator=(const FewThreads&) = delete;
  ~FewThreads() {
    if (at::get_num_threads() != before_) at::set_num_threads(before_);
  }

 private:
  const int before_ = at::get_num_threads();
};

at::Tensor Picked(const at::Tensor& output, const SliceBatch& batch) {
  return output.index_select(0, at::tensor(batch.local, at::kLong).to(output.device()));
}

std::string HostBytes(const at::Tensor& tensor) {
  const at::Tensor host = tensor.to(at::kCPU).contiguous();
  return {static_cast<const char*>(host.const_data_ptr()), host.nbytes()};
}

void AppendDoubles(const at::Tensor& tensor, std::vector<double>* to) {
  const at::Tensor host = tensor.to(at::kCPU, at::kDouble).contiguous();
  const auto* data = host.const_data_ptr<double>();
  to->insert(to->end(), data, data + host.numel());
}

// A batch of slices of a region, with the values of its large sums.
class Batch {
 public:
  // All arguments must outlive it.
  Batch(const SlicePlan& plan, const SliceBatch& batch, std::span<const at::Tensor> inputs,
        LargeSums* sums)
      : plan_(plan), batch_(batch), inputs_(inputs), sums_(*sums) {}

  Result<CutRegion*> OfFloat64() {
    return With([&] { return sums_.Float64(); });
  }
  Result<CutRegion*> OfPerturbation(int move) {
    return With([&] { return sums_.Perturbed(move); });
  }
  Result<CutRegion*> OfOrder(size_t order) {
    return With([&] { return sums_.Aten(order); });
  }
  void WillPerturb(uint64_t end) { sums_.WillPerturb(static_cast<int>(end)); }
  bool has_sums() const { return !plan_.sums().empty(); }

 private:
  Result<CutRegion*> With(const auto& values) {
    if (!cut_.has_value() || has_sums()) {
      CF_ASSIGN_OR_RETURN(const SumValues of_sums, values());
      CF_ASSIGN_OR_RETURN(CutRegion cut,
                          CutRegion::Make(plan_.axes(), batch_.selection, inputs_, of_sums));
      cut_ = std::move(cut);
    }
    return &*cut_;
  }

  const SlicePlan& plan_;
  const SliceBatch& batch_;
  std::span<const at::Tensor> inputs_;
  LargeSums& sums_;
  std::optional<CutRegion> cut_;
};

// ATen's answers in few orders, or in the others, from runs[from] on. Every batch of a region has
// the same number.
Status RunOrders(Batch& cuts, const SliceBatch& batch, at::ScalarType dtype, uint64_t seed,
                 bool others, size_t from, std::vector<std::string>* runs) {
  size_t next = from;
  const auto add = [&](const at::Tensor& output) {
    if (runs->size() <= next) runs->emplace_back();
    (*runs)[next++] += HostBytes(Picked(output, batch).to(dtype));
  };
  CF_ASSIGN_OR_RETURN(const CutRegion* cut, cuts.OfOrder(0));
  if (!others) add(cut->Aten());
  const bool sums = HasSums(cut->signature());
  const int permutations = !cut->CanPermute() || cuts.has_sums() ? 0
                           : sums                                ? kPermutations
                                                                 : kPermutationsAlone;
  const int few = std::min(permutations, kFewAlone);
  for (int p = others ? few : 0; p < (others ? permutations : few); ++p) {
    CF_ASSIGN_OR_RETURN(const at::Tensor permuted,
                        cut->AtenPermuted(seed + (static_cast<uint64_t>(p) << 40)));
    add(permuted);
  }
  if (!sums && !cuts.has_sums()) return Status::Ok();
  for (size_t i = 0; i < SumOrders().size(); ++i) {
    const SumOrder& order = SumOrders()[i];
    if (order.among_few == others) continue;
    CF_ASSIGN_OR_RETURN(cut, cuts.OfOrder(i + 1));
    add(cut->Aten(InOrder(cut->signature(), order)));
  }
  return Status::Ok();
}

// Perturbations number `from` to `to` - 1.
Status RunPerturbations(Batch& cuts, const SliceBatch& batch, uint64_t seed, uint64_t from,
                        uint64_t to, std::vector<std::vector<double>>* moves) {
  moves->resize(std::max<size_t>(moves->size(), to));
  cuts.WillPerturb(to);
  for (uint64_t m = from; m < to; ++m) {
    const auto move = static_cast<int>(m);
    CF_ASSIGN_OR_RETURN(CutRegion* const cut, cuts.OfPerturbation(move));
    AppendDoubles(Picked(cut->Float64Perturbed(seed, move), batch), &(*moves)[m]);
  }
  return Status::Ok();
}

Status MeasureBatch(Batch cuts, const SliceBatch& batch, at::ScalarType dtype, uint64_t seed,
                    uint64_t moves, MeasuredElements* to) {
  CF_ASSIGN_OR_RETURN(const CutRegion* const cut, cuts.OfFloat64());
  AppendDoubles(Picked(cut->Float64(), batch), &to->float64);
  CF_RETURN_IF_ERROR(RunPerturbations(cuts, batch, seed, 0, moves, &to->moves));
  CF_RETURN_IF_ERROR(RunOrders(cuts, batch, dtype, seed, /*others=*/false, 0, &to->runs));
  to->numbers.insert(to->numbers.end(), batch.elements.begin(), batch.elements.end());
  return Status::Ok();
}

Status OnSlices(const std::exception& error) {
  const Status status = StatusOfAten(error);
  return {status.code(), "float64 on slices: " + status.message()};
}

}  // namespace

Status StatusOfAten(const std::exception& error) {
  const auto* of_aten = dynamic_cast<const c10::Error*>(&error);
  const std::string what = of_aten != nullptr ? of_aten->what_without_backtrace() : error.what();
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
      dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return Status::NoMemory(what);
  }
  return Status::Unsupported(what);
}

std::string BytesOfElements(const at::Tensor& tensor, std::span<const int64_t> numbers) {
  TensorSpec spec;
  spec.sizes = tensor.sizes().vec();
  spec.strides = tensor.strides().vec();
  const at::Tensor places =
      at::tensor(PlacesOfElements(spec, numbers), at::kLong).to(tensor.device());
  return HostBytes(TakePlaces(tensor, places));
}

void MeasuredElements::Append(const MeasuredElements& other) {
  numbers.insert(numbers.end(), other.numbers.begin(), other.numbers.end());
  aten += other.aten;
  for (size_t r = 0; r < runs.size(); ++r) runs[r] += other.runs[r];
  float64.insert(float64.end(), other.float64.begin(), other.float64.end());
  for (size_t m = 0; m < moves.size(); ++m) {
    moves[m].insert(moves[m].end(), other.moves[m].begin(), other.moves[m].end());
  }
}

Status MeasureSlices(const SlicePlan& plan, std::vector<SliceBatch> batches,
                     std::span<const at::Tensor> inputs, const at::Tensor& aten, uint64_t seed,
                     Effort effort, MeasuredElements* to) {
  const at::NoGradGuard no_grad;
  const FewThreads threads(plan.bytes());
  LargeSums sums(plan.sums(), inputs, seed, to->sums.get());
  try {
    for (const SliceBatch& batch : batches) {
      CF_RETURN_IF_ERROR(MeasureBatch(Batch(plan, batch, inputs, &sums), batch, aten.scalar_type(),
                                      seed, effort.moves, to));
    }
    to->aten = BytesOfElements(aten, to->numbers);
  } catch (const std::exception& error) {
    return OnSlices(error);
  }
  to->batches = std::move(batches);
  to->effort = {effort.moves, false};
  if (!effort.all_orders) return Status::Ok();
  return MeasureThoroughly(plan, inputs, aten.scalar_type(), seed, to);
}

Status MeasureThoroughly(const SlicePlan& plan, std::span<const at::Tensor> inputs,
                         at::ScalarType dtype, uint64_t seed, MeasuredElements* of) {
  if (of->effort.all_orders) return Status::Ok();
  const at::NoGradGuard no_grad;
  const FewThreads threads(plan.bytes());
  std::vector<std::string> runs = of->runs;
  std::vector<std::vector<double>> moves = of->moves;
  LargeSums sums(plan.sums(), inputs, seed, of->sums.get());
  try {
    for (const SliceBatch& batch : of->batches) {
      Batch cuts(plan, batch, inputs, &sums);
      CF_RETURN_IF_ERROR(
          RunPerturbations(cuts, batch, seed, of->effort.moves, kThorough.moves, &moves));
      CF_RETURN_IF_ERROR(
          RunOrders(cuts, batch, dtype, seed, /*others=*/true, of->runs.size(), &runs));
    }
  } catch (const std::exception& error) {
    return OnSlices(error);
  }
  of->runs = std::move(runs);
  of->moves = std::move(moves);
  of->effort = kThorough;
  return Status::Ok();
}

Result<std::vector<std::vector<double>>> PerturbSlices(const SlicePlan& plan,
                                                       const MeasuredElements& elements,
                                                       std::span<const at::Tensor> inputs,
                                                       uint64_t seed) {
  const at::NoGradGuard no_grad;
  const FewThreads threads(plan.bytes());
  std::vector<std::vector<double>> moved;
  constexpr uint64_t kFirst = kThorough.moves;
  LargeSums sums(plan.sums(), inputs, seed, elements.sums.get());
  try {
    for (const SliceBatch& batch : elements.batches) {
      Batch cuts(plan, batch, inputs, &sums);
      CF_RETURN_IF_ERROR(
          RunPerturbations(cuts, batch, seed, kFirst, kFirst + kMorePerturbations, &moved));
    }
  } catch (const std::exception& error) {
    return OnSlices(error);
  }
  moved.erase(moved.begin(), moved.begin() + kFirst);
  return moved;
}

std::optional<std::string> DecoyOfElements(Decoy decoy, const TensorSpec& spec,
                                           std::span<const int64_t> numbers,
                                           const std::string& aten_bytes, const at::Tensor& aten,
                                           const OpSignature& signature,
                                           std::span<const at::Tensor> inputs) {
  const int64_t columns = spec.sizes.empty() ? 1 : spec.sizes.back();
  const int64_t rows = columns == 0 ? 0 : spec.numel() / columns;
  const int64_t size = DTypeSize(spec.dtype);
  auto rewrite = [&](const auto& value) {
    std::string bytes = aten_bytes;
    for (size_t i = 0; i < numbers.size(); ++i) {
      char* at = bytes.data() + static_cast<int64_t>(i) * size;
      StoreElement(spec.dtype, value(numbers[i], LoadElement(spec.dtype, at)), at);
    }
    return bytes;
  };
  switch (decoy) {
    case Decoy::kZeros:
      return rewrite([](int64_t, double) { return 0.0; });
    case Decoy::kOnes:
      return rewrite([](int64_t, double) { return 1.0; });
    case Decoy::kSignFlipped:
      if (spec.dtype == DType::kBool) {
        return rewrite([](int64_t, double value) { return 1.0 - value; });
      }
      return rewrite([](int64_t, double value) { return -value; });
    case Decoy::kInputCopy:
      for (size_t i = 0; i < inputs.size(); ++i) {
        const TensorSpec& input = signature.inputs[i];
        if (input.dtype == spec.dtype && input.numel() == spec.numel()) {
          return BytesOfElements(inputs[i], numbers);
        }
      }
      return std::nullopt;
    case Decoy::kLastRowZeroed: {
      if (rows < 2) return std::nullopt;
      int64_t last = -1;  // of the rows that are not all zeros
      for (size_t i = 0; i < numbers.size(); ++i) {
        const char* at = aten_bytes.data() + static_cast<int64_t>(i) * size;
        if (LoadElement(spec.dtype, at) != 0) last = std::max(last, numbers[i] / columns);
      }
      return rewrite(
          [&](int64_t number, double value) { return number / columns == last ? 0.0 : value; });
    }
    case Decoy::kRowConstant: {
      if (columns < 2) return std::nullopt;
      std::vector<int64_t> first(numbers.begin(), numbers.end());
      for (int64_t& number : first) number -= number % columns;
      return BytesOfElements(aten, first);
    }
  }
  return std::nullopt;
}

}  // namespace cudaforge
