#include "verify/aten_slice_set.h"

#include <algorithm>
#include <new>
#include <utility>

#include "verify/aten_orders.h"
#include "verify/aten_slices.h"
#include "verify/elements.h"

namespace cudaforge {
namespace {

// With ATen's own answer, and that of its calls on the slices, sixteen orders at least.
constexpr int kPermutations = 1;
constexpr int kPermutationsAlone = 14;  // where no sum can be written out

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

// ATen's answers in as many orders as there are, the same number for every batch of a region.
Status RunOrders(const CutRegion& cut, const SliceBatch& batch, at::ScalarType dtype, uint64_t seed,
                 std::vector<std::string>* runs) {
  size_t next = 0;
  auto add = [&](const at::Tensor& output) {
    if (runs->size() <= next) runs->emplace_back();
    (*runs)[next++] += HostBytes(Picked(output, batch).to(dtype));
  };
  add(cut.Aten());
  const bool sums = HasSums(cut.signature());
  const int permutations = !cut.CanPermute() ? 0 : sums ? kPermutations : kPermutationsAlone;
  for (int p = 0; p < permutations; ++p) {
    CF_ASSIGN_OR_RETURN(const at::Tensor permuted,
                        cut.AtenPermuted(seed + (static_cast<uint64_t>(p) << 40)));
    add(permuted);
  }
  if (!sums) return Status::Ok();
  for (const SumOrder& order : SumOrders()) add(cut.Aten(InOrder(cut.signature(), order)));
  return Status::Ok();
}

Status MeasureBatch(const SlicePlan& plan, const SliceBatch& batch,
                    std::span<const at::Tensor> inputs, at::ScalarType dtype, uint64_t seed,
                    MeasuredElements* to) {
  CF_ASSIGN_OR_RETURN(CutRegion cut, CutRegion::Make(plan.axes(), batch.selection, inputs));
  AppendDoubles(Picked(cut.Float64(), batch), &to->float64);
  to->moves.resize(kSliceMoves);
  for (uint64_t m = 0; m < kSliceMoves; ++m) {
    AppendDoubles(Picked(cut.Float64Moved(seed, static_cast<int>(m)), batch), &to->moves[m]);
  }
  CF_RETURN_IF_ERROR(RunOrders(cut, batch, dtype, seed, &to->runs));
  to->numbers.insert(to->numbers.end(), batch.elements.begin(), batch.elements.end());
  return Status::Ok();
}

}  // namespace

Status StatusOfAten(const std::exception& error) {
  const auto* of_aten = dynamic_cast<const c10::Error*>(&error);
  const std::string what = of_aten != nullptr ? of_aten->what_without_backtrace() : error.what();
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
      dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return Status::NoMemory("float64 on slices: " + what);
  }
  return Status::Unsupported("float64 on slices: " + what);
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
                     MeasuredElements* to) {
  const at::NoGradGuard no_grad;
  try {
    for (const SliceBatch& batch : batches) {
      CF_RETURN_IF_ERROR(MeasureBatch(plan, batch, inputs, aten.scalar_type(), seed, to));
    }
    to->aten = BytesOfElements(aten, to->numbers);
  } catch (const std::exception& error) {
    return StatusOfAten(error);
  }
  to->batches = std::move(batches);
  return Status::Ok();
}

Result<std::vector<std::vector<double>>> MoveSlices(const SlicePlan& plan,
                                                    const MeasuredElements& elements,
                                                    std::span<const at::Tensor> inputs,
                                                    uint64_t seed) {
  const at::NoGradGuard no_grad;
  std::vector<std::vector<double>> moved(kMoreSliceMoves);
  try {
    for (const SliceBatch& batch : elements.batches) {
      CF_ASSIGN_OR_RETURN(CutRegion cut, CutRegion::Make(plan.axes(), batch.selection, inputs));
      for (size_t m = 0; m < moved.size(); ++m) {
        const int move = static_cast<int>(kSliceMoves + m);
        AppendDoubles(Picked(cut.Float64Moved(seed, move), batch), &moved[m]);
      }
    }
  } catch (const std::exception& error) {
    return StatusOfAten(error);
  }
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
      int64_t last = -1;  // of those that hold anything but zeros
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
