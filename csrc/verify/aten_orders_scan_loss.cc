// Scans and losses with their sums in other orders.
#include <algorithm>

#include "verify/aten_orders.h"

namespace cudaforge {
namespace {

constexpr int64_t kScannedOnHost = int64_t{4} << 20;    // terms
constexpr int64_t kReducedToMean = 1, kNotReduced = 0;  // reductions

// Running sums of terms [n, width] in blocks. Each block has its own accumulator; the sum of the
// blocks before is added to it.
template <typename T>
at::Tensor ScanBlocks(const at::Tensor& terms, int64_t length) {
  at::Tensor out = at::empty_like(terms);
  const int64_t count = terms.size(0), width = terms.size(1);
  const T* const from = terms.const_data_ptr<T>();
  T* const to = out.mutable_data_ptr<T>();
  std::vector<T> before(static_cast<size_t>(width), T(0)), sums(before);
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t w = 0; w < width; ++w) {
      const auto at = static_cast<size_t>(w);
      if (i % length == 0) {
        before[at] += sums[at];
        sums[at] = T(0);
      }
      sums[at] += from[i * width + w];
      to[i * width + w] = sums[at] + before[at];
    }
  }
  return out;
}

}  // namespace

bool ScanInOrder(torch::jit::Stack* stack, SumOrder order) {
  const at::Tensor& self = (*stack)[0].toTensor();
  const c10::IValue& dtype = stack->back();
  const at::ScalarType type = dtype.isInt() ? dtype.toScalarType() : self.scalar_type();
  if (!at::isFloatingType(type) || self.dim() == 0 || self.numel() == 0 ||
      self.numel() > kScannedOnHost) {
    return false;
  }
  const at::Tensor moved = InOpMath(self.to(type)).movedim((*stack)[1].toInt(), 0);
  const at::Tensor terms = moved.to(at::kCPU).contiguous().view({moved.size(0), -1});
  // Lanes cannot scan: uses as many blocks as there would be lanes, each contiguous.
  const int64_t count = terms.size(0);
  const int64_t length = order.strided ? order.parts : (count + order.parts - 1) / order.parts;
  const at::Tensor scanned = terms.scalar_type() == at::kDouble ? ScanBlocks<double>(terms, length)
                                                                : ScanBlocks<float>(terms, length);
  const at::Tensor back = scanned.view(moved.sizes()).to(self.device());
  *stack = {back.movedim(0, (*stack)[1].toInt()).to(type)};
  return true;
}

bool LossInOrder(torch::jit::Stack* stack, SumOrder order) {
  const at::Tensor scores = (*stack)[0].toTensor(), labels = (*stack)[1].toTensor();
  const int64_t reduction = (*stack)[3].toInt();
  if (!at::isFloatingType(scores.scalar_type()) || scores.dim() < 2 || reduction == kNotReduced) {
    return false;
  }
  const at::Tensor counts = labels.ne((*stack)[4].toInt());
  const at::Tensor safe = labels.mul(counts);
  const at::Tensor picked = InOpMath(scores).gather(1, safe.unsqueeze(1)).squeeze(1);
  at::Tensor weights = at::ones_like(picked);
  if ((*stack)[2].isTensor() && (*stack)[2].toTensor().defined()) {
    const at::Tensor of_class = InOpMath((*stack)[2].toTensor());
    weights = of_class.index_select(0, safe.reshape(-1)).view(safe.sizes());
  }
  const auto sum = [&](const at::Tensor& terms) {
    const at::Tensor counted = at::where(counts, terms, at::zeros_like(terms));
    return SumInOrder(counted.reshape(-1), {0}, order).reshape({});
  };
  const at::Tensor loss = sum(-picked * weights), weight = sum(weights);
  const at::ScalarType type = scores.scalar_type();
  *stack = {(reduction == kReducedToMean ? loss / weight : loss).to(type), weight.to(type)};
  return true;
}

}  // namespace cudaforge
