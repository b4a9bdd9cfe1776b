#include "verify/aten_large_sums.h"

#include <algorithm>
#include <utility>

#include "signature/op_facts.h"
#include "verify/aten_orders.h"

namespace cudaforge {
namespace {

constexpr int kOfFloat64 = 0, kOfPerturbations = 1000, kOfOrders = 2000;  // keys of KnownSums
// Limits of sequential additions into one accumulator; beyond that, neighbours are added first. No
// correct kernel adds many millions of floats sequentially, and none on a GPU thousands.
constexpr int64_t kMostAdditions = int64_t{4} << 20, kMostOnGpu = 1024;

at::Tensor SumOfBlocks(const std::vector<at::Tensor>& blocks, bool one_by_one) {
  if (!one_by_one) return at::stack(blocks).sum(0);
  at::Tensor sum = blocks[0].clone();
  for (size_t b = 1; b < blocks.size(); ++b) sum.add_(blocks[b]);
  return sum;
}

// Sums of blocks, which are added at the end.
class BlockSums {
 public:
  BlockSums(LargeSum::Kind kind, bool wide, bool one_by_one)
      : kind_(kind), wide_(wide), one_by_one_(one_by_one) {}

  void Add(const std::vector<at::Tensor>& outputs, int64_t count) {
    const at::Tensor value = WidenedTo(outputs[0]);
    places_ += static_cast<double>(count);
    const bool average = kind_ == LargeSum::Kind::kAverage;
    values_.push_back(average ? value * static_cast<double>(count) : value);
    if (kind_ == LargeSum::Kind::kWeighted) weights_.push_back(WidenedTo(outputs[1]));
  }
  at::Tensor Weight() const { return SumOfBlocks(weights_, one_by_one_); }
  at::Tensor Value() const {
    const at::Tensor sum = SumOfBlocks(values_, one_by_one_);
    if (kind_ == LargeSum::Kind::kAverage) return sum / places_;
    return kind_ == LargeSum::Kind::kWeighted ? sum / Weight() : sum;
  }

 private:
  at::Tensor WidenedTo(const at::Tensor& tensor) const {
    return wide_ ? tensor.to(at::kDouble) : InOpMath(tensor);
  }

  const LargeSum::Kind kind_;
  const bool wide_, one_by_one_;
  std::vector<at::Tensor> values_, weights_;
  double places_ = 0;
};

// Sums by accumulators that continue from block to block, on the host.
class Accumulators {
 public:
  Accumulators(const LargeSum& sum, int64_t parts, bool on_gpu) : sum_(sum), parts_(parts) {
    const bool few = sum.terms <= kMostAdditions;
    const int64_t most = (few || !on_gpu ? kMostAdditions : kMostOnGpu) * parts;
    neighbours_ = (sum.terms + most - 1) / most;
  }

  // terms: [n, values].
  void Add(const at::Tensor& terms) {
    at::Tensor some = terms;
    if (neighbours_ > 1) {
      const int64_t whole = terms.size(0) / neighbours_ * neighbours_;
      some = terms.narrow(0, 0, whole).view({-1, neighbours_, terms.size(1)}).sum(1);
      if (whole < terms.size(0)) {
        const at::Tensor last = terms.narrow(0, whole, terms.size(0) - whole).sum(0, true);
        some = at::cat({some, last});
      }
    }
    some = some.to(at::kCPU).contiguous();
    if (!sums_.defined()) sums_ = at::zeros({parts_, some.size(1)}, some.options());
    some.scalar_type() == at::kDouble ? AddEach<double>(some) : AddEach<float>(some);
  }
  at::Tensor Value() const {
    at::Tensor sum = sums_.select(0, 0).clone();
    for (int64_t p = 1; p < parts_; ++p) sum.add_(sums_.select(0, p));
    if (sum_.kind == LargeSum::Kind::kAverage) sum = sum / static_cast<double>(sum_.terms);
    return sum.reshape(sum_.axes.signature.output_spec(0).sizes);
  }

 private:
  template <typename T>
  void AddEach(const at::Tensor& terms) {
    const int64_t width = terms.size(1);
    const T* const from = terms.const_data_ptr<T>();
    T* const sums = sums_.mutable_data_ptr<T>();
    for (int64_t i = 0; i < terms.size(0); ++i, next_ = (next_ + 1) % parts_) {
      for (int64_t w = 0; w < width; ++w) sums[next_ * width + w] += from[i * width + w];
    }
  }

  const LargeSum& sum_;
  const int64_t parts_;
  int64_t neighbours_ = 1, next_ = 0;
  at::Tensor sums_;
};

// For RegionProgram::RunWith: makes the last call return its terms instead of their sum.
RegionProgram::Instead TermsOfLast(const OpSignature& signature, SumOrder order) {
  const auto last = static_cast<size_t>(signature.outputs[0].node);
  return [&signature, last, in_order = InOrder(signature, order)](size_t node,
                                                                  torch::jit::Stack* stack) {
    if (node != last) return in_order(node, stack);
    if (FactsOf(signature.nodes[node].op).weights >= 0) {
      (*stack)[kReductionOfLoss] = int64_t{0};
      return false;
    }
    const at::Tensor self = (*stack)[0].toTensor();
    const c10::IValue& dtype = stack->back();
    const std::vector<int64_t> dims = SummedDims(*stack);
    std::vector<int64_t> front = dims, shape = {-1};
    for (int64_t d = 0; d < self.dim(); ++d) {
      if (std::find(dims.begin(), dims.end(), d) != dims.end()) continue;
      front.push_back(d);
      shape.push_back(self.size(d));
    }
    const at::Tensor terms = dtype.isInt() ? self.to(dtype.toScalarType()) : self;
    *stack = {InOpMath(terms).permute(front).reshape(shape)};
    return true;
  };
}

// Returns true if the terms of the sum are available (TermsOfLast).
bool HasTerms(const LargeSum& sum) {
  const OutputRef& output = sum.axes.signature.outputs[0];
  return FactsOf(sum.axes.signature.nodes[static_cast<size_t>(output.node)].op).weights !=
         output.out;
}

// Keeps the arguments of a program's last call from the first run of a block, so that later runs
// need no other call. REQUIRES: only the last call depends on the order.
class GivenToLast {
 public:
  explicit GivenToLast(const OpSignature& signature) : signature_(signature) {}

  RegionProgram::Instead Before(RegionProgram::Instead last) {
    return [this, last = std::move(last)](size_t node, torch::jit::Stack* stack) {
      if (node + 1 == signature_.nodes.size()) {
        if (given_.empty()) {
          given_ = *stack;
        } else {
          *stack = given_;
        }
        return last && last(node, stack);
      }
      if (given_.empty()) return false;
      stack->assign(signature_.nodes[node].outputs.size(), at::Tensor());
      return true;
    };
  }

 private:
  const OpSignature& signature_;
  torch::jit::Stack given_;
};

// Returns true if the order of a sum affects only its last call.
bool OnlyLastHasSums(const OpSignature& signature) {
  if (signature.outputs[0].node + 1 != static_cast<int>(signature.nodes.size())) return false;
  return std::none_of(signature.nodes.begin(), std::prev(signature.nodes.end()),
                      [](const Node& node) { return FactsOf(node.op).sums != OpSums::kNone; });
}

// A sum in a given order, computed in blocks.
class InOrderByBlocks {
 public:
  InOrderByBlocks(const LargeSum& sum, const SumOrder& order, bool on_gpu)
      : sum_(sum),
        order_(order),
        by_terms_(order.one_by_one && HasTerms(sum)),
        sums_(sum.kind, /*wide=*/false, order.one_by_one),
        accumulators_(sum, order.parts, on_gpu) {}

  // `given`: data kept of the block, or nullptr.
  void Add(const CutRegion& cut, int64_t places, GivenToLast* given) {
    const auto before = [given](RegionProgram::Instead last) {
      return given == nullptr ? last : given->Before(std::move(last));
    };
    if (!by_terms_ || sum_.kind == LargeSum::Kind::kWeighted) {
      const bool own = order_.parts == 1 && !order_.one_by_one;  // ATen's
      sums_.Add(
          cut.AllAten(before(own ? RegionProgram::Instead() : InOrder(cut.signature(), order_))),
          places);
    }
    if (!by_terms_) return;
    const at::Tensor terms = InOpMath(cut.AllAten(before(TermsOfLast(cut.signature(), order_)))[0]);
    accumulators_.Add(terms.reshape({-1, sum_.axes.signature.output_spec(0).numel()}));
  }
  at::Tensor Value(at::Device device) const {
    at::Tensor value = by_terms_ ? accumulators_.Value().to(device) : sums_.Value();
    if (by_terms_ && sum_.kind == LargeSum::Kind::kWeighted) value = value / sums_.Weight();
    return value.to(ToScalarType(sum_.dtype));
  }

 private:
  const LargeSum& sum_;
  const SumOrder order_;
  const bool by_terms_;
  BlockSums sums_;
  Accumulators accumulators_;
};

}  // namespace

Result<SumValues> LargeSums::Evaluate(int key, const SumFunction& value_of) {
  if (sums_.empty()) return SumValues();
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  SumValues values;
  for (const LargeSum& sum : sums_) {
    CF_ASSIGN_OR_RETURN(at::Tensor value, value_of(sum, values));
    values.push_back(std::move(value));
  }
  known_[key] = values;
  return values;
}

Status LargeSums::ForEachBlock(const LargeSum& sum, const SumValues& before,
                               const BlockFunction& visit) const {
  Status status;
  sum.ForEachBlock([&](const Selection& block, int64_t places) {
    Result<CutRegion> cut = CutRegion::Make(sum.axes, block, inputs_, before);
    status = cut.status();
    if (status.ok()) visit(*cut, places);
    return status.ok();
  });
  return status;
}

Result<SumValues> LargeSums::Float64() {
  return Evaluate(kOfFloat64, [&](const LargeSum& sum, const SumValues& before) {
    return InFloat64(sum, before, [](CutRegion& cut) { return cut.AllFloat64(); });
  });
}

Result<SumValues> LargeSums::Perturbed(int move) {
  if (sums_.size() == 1 && move < perturbations_end_ && !known_.contains(kOfPerturbations + move)) {
    CF_RETURN_IF_ERROR(PerturbRange(move, perturbations_end_));
  }
  return Evaluate(kOfPerturbations + move, [&](const LargeSum& sum, const SumValues& before) {
    return InFloat64(sum, before,
                     [&](CutRegion& cut) { return cut.AllFloat64Perturbed(seed_, move); });
  });
}

// Draws a block's random bits once.
Status LargeSums::PerturbRange(int from, int end) {
  std::vector<BlockSums> moved;
  for (int m = from; m < end; ++m) {
    moved.emplace_back(sums_[0].kind, /*wide=*/true, /*one_by_one=*/true);
  }
  CF_RETURN_IF_ERROR(ForEachBlock(sums_[0], {}, [&](CutRegion& cut, int64_t places) {
    for (int m = from; m < end; ++m) {
      moved[static_cast<size_t>(m - from)].Add(cut.AllFloat64Perturbed(seed_, m), places);
    }
  }));
  for (int m = from; m < end; ++m) {
    known_[kOfPerturbations + m] = {moved[static_cast<size_t>(m - from)].Value()};
  }
  return Status::Ok();
}

Result<at::Tensor> LargeSums::InFloat64(const LargeSum& sum, const SumValues& before,
                                        const RunFunction& run) const {
  BlockSums sums(sum.kind, /*wide=*/true, /*one_by_one=*/true);
  CF_RETURN_IF_ERROR(ForEachBlock(
      sum, before, [&](CutRegion& cut, int64_t places) { sums.Add(run(cut), places); }));
  return sums.Value();
}

Result<SumValues> LargeSums::Aten(size_t order) {
  const int key = kOfOrders + static_cast<int>(order);
  if (order > 0 && !known_.contains(key) && sums_.size() == 1 &&
      OnlyLastHasSums(sums_[0].axes.signature)) {
    CF_RETURN_IF_ERROR(InAllOrders());
  }
  const SumOrder of = order > 0 ? SumOrders()[order - 1] : SumOrder();  // ATen's own order
  const bool on_gpu = inputs_[0].is_cuda();
  return Evaluate(key, [&](const LargeSum& sum, const SumValues& before) -> Result<at::Tensor> {
    InOrderByBlocks in_order(sum, of, on_gpu);
    CF_RETURN_IF_ERROR(ForEachBlock(
        sum, before, [&](CutRegion& cut, int64_t places) { in_order.Add(cut, places, nullptr); }));
    return in_order.Value(inputs_[0].device());
  });
}

// Computes the sum's inputs once per block.
Status LargeSums::InAllOrders() {
  std::vector<InOrderByBlocks> orders;
  for (const SumOrder& order : SumOrders()) {
    orders.emplace_back(sums_[0], order, inputs_[0].is_cuda());
  }
  CF_RETURN_IF_ERROR(ForEachBlock(sums_[0], {}, [&](CutRegion& cut, int64_t places) {
    GivenToLast given(cut.signature());
    for (InOrderByBlocks& order : orders) order.Add(cut, places, &given);
  }));
  for (size_t i = 0; i < orders.size(); ++i) {
    known_[kOfOrders + static_cast<int>(i) + 1] = {orders[i].Value(inputs_[0].device())};
  }
  return Status::Ok();
}

}  // namespace cudaforge
