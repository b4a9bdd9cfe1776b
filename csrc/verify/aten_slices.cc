#include "verify/aten_slices.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/random.h"
#include "verify/elements.h"

namespace cudaforge {
namespace {

using Kind = Selection::Kind;

at::Tensor Numbers(const std::vector<int64_t>& numbers, at::Device device) {
  return at::tensor(numbers, at::kLong).to(device);
}

// Random bits for each number: equal numbers get equal bits.
at::Tensor Scrambled(const at::Tensor& numbers, uint64_t seed) {
  const auto start = static_cast<int64_t>(SplitMix(seed).Next() >> 1);
  at::Tensor bits = numbers.clone();
  for (const int64_t factor : {int64_t{0x1e3779b97f4a7c15}, int64_t{0x3f58476d1ce4e5b9}}) {
    bits.add_(start).mul_(factor);
    bits.bitwise_xor_(bits.bitwise_right_shift(at::Scalar(int64_t{31})));
  }
  return bits;
}

// The bound of one operation's rounding error, including underflow; 0 for infinite values and NaN.
at::Tensor UnitsOf(const at::Tensor& values, DType dtype) {
  const at::Tensor wide = values.to(at::kDouble);
  at::Tensor units = wide.mul(ComputeRoundoff(dtype));
  if (const double least = ComputeUnderflow(dtype); least > 0) units.add_(wide.ne(0), least);
  return units.nan_to_num_(0, 0, 0);
}

bool IsCut(const RegionAxes::Dims& dims, const Selection& selection) {
  return std::any_of(dims.begin(), dims.end(), [&](const AxisList& dim) {
    return std::any_of(dim.begin(), dim.end(), [&](int axis) {
      return selection.axes[static_cast<size_t>(axis)].kind != Kind::kWhole;
    });
  });
}

// The selection as a view, if possible, and a contiguous one.
std::optional<at::Tensor> AsView(const at::Tensor& whole, const RegionAxes::Dims& dims,
                                 const Selection& selection) {
  at::Tensor view = whole;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (!IsCut({dims[d]}, selection)) continue;
    const Selection::Axis& axis = selection.axes[static_cast<size_t>(dims[d][0])];
    if (dims[d].size() != 1 || axis.kind != Kind::kListed || axis.places.empty()) {
      return std::nullopt;
    }
    for (size_t p = 1; p < axis.places.size(); ++p) {
      if (axis.places[p] != axis.places[p - 1] + 1) return std::nullopt;
    }
    view = view.narrow(static_cast<int64_t>(d), axis.places[0], std::ssize(axis.places));
  }
  return view.is_contiguous() ? std::optional(view) : std::nullopt;
}

// Returns true where query l attends to key s: s <= l.
at::Tensor CausalMask(const RegionAxes& region, size_t node, const Selection& selection,
                      at::Device device) {
  const RegionAxes::Dims dims = region.MaskDims(node);
  std::vector<int64_t> strides(dims.size(), 0);
  strides[dims.size() - 2] = 1;
  const at::Tensor query = PlacesOf(region, dims, strides, selection, device);
  strides[dims.size() - 2] = 0;
  strides[dims.size() - 1] = 1;
  return PlacesOf(region, dims, strides, selection, device).le(query);
}

}  // namespace

at::Tensor PlacesOf(const RegionAxes& region, const RegionAxes::Dims& dims,
                    std::span<const int64_t> strides, const Selection& selection,
                    at::Device device) {
  AxisList all;
  for (const AxisList& dim : dims) all.insert(all.end(), dim.begin(), dim.end());
  const std::vector<int64_t> sizes = selection.Sizes(region);
  std::vector<int64_t> spread, result;
  for (const int axis : all) spread.push_back(sizes[static_cast<size_t>(axis)]);
  for (const AxisList& dim : dims) {
    result.push_back(1);
    for (const int axis : dim) result.back() *= sizes[static_cast<size_t>(axis)];
  }
  at::Tensor places = at::zeros({}, at::TensorOptions().dtype(at::kLong).device(device));
  size_t position = 0;
  for (size_t d = 0; d < dims.size(); ++d) {
    int64_t stride = strides[d];
    std::vector<int64_t> of_axis(dims[d].size());
    for (size_t i = dims[d].size(); i-- > 0;) {
      of_axis[i] = stride;
      stride *= region.axes[static_cast<size_t>(dims[d][i])].size;
    }
    for (size_t i = 0; i < dims[d].size(); ++i, ++position) {
      if (of_axis[i] == 0) continue;
      const Selection::Axis& axis = selection.axes[static_cast<size_t>(dims[d][i])];
      const int along = axis.kind == Kind::kShares ? selection.points : dims[d][i];
      const auto at = std::find(all.begin(), all.end(), along);
      TORCH_CHECK(at != all.end(), "a tensor has a point's second axis alone");
      std::vector<int64_t> shape(all.size(), 1);
      at::Tensor numbers =
          axis.kind == Kind::kWhole
              ? at::arange(region.axes[static_cast<size_t>(dims[d][i])].size, places.options())
              : Numbers(axis.places, device);
      shape[static_cast<size_t>(at - all.begin())] = numbers.numel();
      places = places + (numbers * of_axis[i]).view(shape);
    }
  }
  return places.expand(spread).reshape(result);
}

at::Tensor TakePlaces(const at::Tensor& tensor, const at::Tensor& places) {
  if (tensor.numel() == 0) return at::empty(places.sizes(), tensor.options());
  int64_t reach = 1;
  for (int64_t d = 0; d < tensor.dim(); ++d) reach += (tensor.size(d) - 1) * tensor.stride(d);
  const at::Tensor flat = tensor.as_strided({reach}, {1});
  return flat.index_select(0, places.reshape(-1)).reshape(places.sizes());
}

std::vector<int64_t> PlacesOfElements(const TensorSpec& spec, std::span<const int64_t> elements) {
  std::vector<int64_t> places;
  places.reserve(elements.size());
  for (int64_t element : elements) {
    int64_t place = 0;
    for (size_t d = spec.sizes.size(); d-- > 0;) {
      place += element % spec.sizes[d] * spec.strides[d];
      element /= spec.sizes[d];
    }
    places.push_back(place);
  }
  return places;
}

Result<CutRegion> CutRegion::Make(const RegionAxes& region, Selection selection,
                                  std::span<const at::Tensor> inputs,
                                  std::span<const at::Tensor> sums) {
  CutRegion cut;
  const bool masked = selection.NeedsMask(region);
  const OpSignature adapted = region.Adapted(selection.Sizes(region), masked);
  CF_ASSIGN_OR_RETURN(cut.program_, RegionProgram::Create(adapted));
  cut.region_ = &region;
  cut.selection_ = std::move(selection);
  cut.whole_.assign(inputs.begin(), inputs.end());
  cut.sums_.assign(sums.begin(), sums.end());
  for (size_t i = 0; i < region.inputs.size(); ++i) {
    const at::Tensor& whole = cut.Whole(i);
    if (!IsCut(region.inputs[i], cut.selection_)) {
      cut.inputs_.push_back(whole);
      continue;
    }
    if (const auto view = AsView(whole, region.inputs[i], cut.selection_); view.has_value()) {
      cut.inputs_.push_back(*view);
      continue;
    }
    cut.inputs_.push_back(TakePlaces(whole, PlacesOf(region, region.inputs[i], whole.strides(),
                                                     cut.selection_, whole.device())));
  }
  const at::Device device = inputs.empty() ? at::Device(at::kCPU) : inputs[0].device();
  for (size_t n = 0; masked && n < region.causal.size(); ++n) {
    if (region.causal[n]) cut.inputs_.push_back(CausalMask(region, n, cut.selection_, device));
  }
  return cut;
}

std::vector<at::Tensor> CutRegion::AllFloat64Perturbed(uint64_t seed, int move) {
  constexpr int kFirstBit = 8;
  if (bits_.empty() || bits_of_ != seed) {
    bits_of_ = seed;
    bits_.resize(region_->inputs.size());
    units_.resize(region_->inputs.size());
    for (size_t i = 0; i < region_->inputs.size(); ++i) {
      const DType dtype = region_->signature.inputs[i].dtype;
      // A sum's value is perturbed through the region's inputs.
      if (!IsFloating(dtype) || inputs_[i].numel() == 0 || IsSum(region_->input_of[i])) continue;
      const auto number = static_cast<uint64_t>(region_->input_of[i]);
      const at::Tensor& whole = whole_[number];
      bits_[i] = Scrambled(
          PlacesOf(*region_, region_->inputs[i], whole.strides(), selection_, whole.device()),
          seed + number);
      units_[i] = UnitsOf(inputs_[i], dtype);
    }
  }
  std::vector<at::Tensor> moved = inputs_;
  for (size_t i = 0; i < units_.size(); ++i) {
    if (!units_[i].defined()) continue;
    const at::Tensor up = bits_[i].bitwise_and(at::Scalar(int64_t{1} << (kFirstBit + move))).ne(0);
    const at::Tensor values = inputs_[i].to(at::kDouble);
    moved[i] = at::where(up, values + units_[i], values - units_[i]);
  }
  return program_->RunFp64(moved);
}

bool CutRegion::CanPermute() const {
  return std::any_of(region_->axes.begin(), region_->axes.end(), [](const RegionAxes::Axis& axis) {
    return axis.state == AxisState::kPermutable && axis.size > 1;
  });
}

Result<at::Tensor> CutRegion::AtenPermuted(uint64_t seed) const {
  Selection order = selection_;
  Selection back;
  back.axes.resize(order.axes.size());
  // The rest of the output, as a region.
  RegionAxes left = *region_;
  const std::vector<int64_t> sizes = selection_.Sizes(*region_);
  for (size_t a = 0; a < sizes.size(); ++a) {
    left.axes[a].size = sizes[a];
    const RegionAxes::Axis& axis = region_->axes[a];
    if (axis.state != AxisState::kPermutable || order.axes[a].kind != Kind::kWhole) continue;
    const auto size = static_cast<size_t>(axis.size);
    std::vector<int64_t> to(size), from(size);
    for (size_t i = 0; i < to.size(); ++i) to[i] = static_cast<int64_t>(i);
    SplitMix random(seed + a);
    for (size_t i = to.size(); i > 1; --i) std::swap(to[i - 1], to[random.Below(i)]);
    for (size_t i = 0; i < to.size(); ++i)
      from[static_cast<size_t>(to[i])] = static_cast<int64_t>(i);
    order.axes[a] = {Kind::kListed, std::move(to)};
    back.axes[a] = {Kind::kListed, std::move(from)};
  }
  CF_ASSIGN_OR_RETURN(const CutRegion permuted, Make(*region_, order, whole_, sums_));
  const at::Tensor output = permuted.Aten();
  std::vector<int64_t> strides;
  int64_t stride = 1;
  const RegionAxes::Dims& dims = left.output();
  for (size_t d = dims.size(); d-- > 0;) {
    strides.insert(strides.begin(), stride);
    for (const int axis : dims[d]) stride *= sizes[static_cast<size_t>(axis)];
  }
  return TakePlaces(output, PlacesOf(left, dims, strides, back, output.device())).reshape(-1);
}

}  // namespace cudaforge
