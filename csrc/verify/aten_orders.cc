#include "verify/aten_orders.h"

#include <ATen/OpMathType.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/random.h"
#include "signature/op_facts.h"

namespace cudaforge {
namespace {

using Stack = torch::jit::Stack;

constexpr int64_t kMostSteps = 1024;
constexpr int64_t kTermsOnHost = int64_t{4} << 20;
constexpr int64_t kProductsOnHost = int64_t{16} << 20;

// Adds sequentially along the first dimension.
at::Tensor Accumulate(const at::Tensor& terms) {
  at::Tensor sum = terms.select(0, 0).clone();
  for (int64_t i = 1; i < terms.size(0); ++i) sum.add_(terms.select(0, i));
  return sum;
}

// Pads dimension 0 with zeros to `size`.
at::Tensor PadFirst(const at::Tensor& terms, int64_t size) {
  if (terms.size(0) == size) return terms;
  std::vector<int64_t> shape = terms.sizes().vec();
  shape[0] = size - terms.size(0);
  return at::cat({terms, at::zeros(shape, terms.options())});
}

int64_t CeilOf(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The terms' indices in the given order.
std::vector<int64_t> Sequence(int64_t count, uint64_t shuffle) {
  std::vector<int64_t> sequence(static_cast<size_t>(count));
  std::iota(sequence.begin(), sequence.end(), 0);
  SplitMix random(shuffle);
  for (size_t i = shuffle == 0 ? 0 : sequence.size(); i > 1; --i) {
    std::swap(sequence[i - 1], sequence[random.Below(i)]);
  }
  return sequence;
}

// The part that term `i` of `count` belongs to.
int64_t PartOf(int64_t i, int64_t count, int64_t parts, bool strided) {
  return strided ? i % parts : i / CeilOf(count, parts);
}

// One accumulator for each part, over terms [n, width], on the host.
template <typename T>
at::Tensor AccumulateOnHost(const at::Tensor& terms, SumOrder order) {
  const at::Tensor host = terms.to(at::kCPU).reshape({terms.size(0), -1}).contiguous();
  const int64_t count = host.size(0), width = host.size(1);
  const int64_t parts = std::min(order.parts, count);
  std::vector<T> sums(static_cast<size_t>(parts * width), T(0));
  const T* from = host.const_data_ptr<T>();
  const std::vector<int64_t> sequence = Sequence(count, order.shuffle);
  for (int64_t i = 0; i < count; ++i) {
    T* const sum = sums.data() + PartOf(i, count, parts, order.strided) * width;
    const T* const term = from + sequence[static_cast<size_t>(i)] * width;
    for (int64_t w = 0; w < width; ++w) sum[w] += term[w];
  }
  for (int64_t p = 1; p < parts; ++p) {
    for (int64_t w = 0; w < width; ++w)
      sums[static_cast<size_t>(w)] += sums[static_cast<size_t>(p * width + w)];
  }
  sums.resize(static_cast<size_t>(width));
  std::vector<int64_t> shape = terms.sizes().vec();
  shape.erase(shape.begin());
  return at::tensor(sums, host.options()).reshape(shape).to(terms.device());
}

// The same of products [b, m, k] by [b, k, n].
template <typename T>
at::Tensor MultiplyOnHost(const at::Tensor& a, const at::Tensor& b, SumOrder order) {
  const int64_t rows = a.size(-2), inner = a.size(-1), columns = b.size(-1);
  const at::Tensor left = a.to(at::kCPU).reshape({-1, rows, inner}).contiguous();
  const at::Tensor right = b.to(at::kCPU).reshape({-1, inner, columns}).contiguous();
  const int64_t parts = std::clamp<int64_t>(order.parts, 1, std::max<int64_t>(inner, 1));
  std::vector<int64_t> shape = a.sizes().vec();
  shape.back() = columns;
  at::Tensor out = at::zeros({left.size(0), rows, columns}, left.options());
  const std::vector<int64_t> sequence = Sequence(inner, order.shuffle);
  std::vector<T> sums(static_cast<size_t>(parts * columns));
  for (int64_t r = 0; r < left.size(0) * rows; ++r) {
    std::fill(sums.begin(), sums.end(), T(0));
    const T* const row = left.const_data_ptr<T>() + r * inner;
    const T* const matrix = right.const_data_ptr<T>() + r / rows * inner * columns;
    for (int64_t i = 0; i < inner; ++i) {
      const int64_t k = sequence[static_cast<size_t>(i)];
      T* const sum = sums.data() + PartOf(i, inner, parts, order.strided) * columns;
      for (int64_t c = 0; c < columns; ++c) sum[c] += row[k] * matrix[k * columns + c];
    }
    T* const to = out.mutable_data_ptr<T>() + r * columns;
    for (int64_t p = 0; p < parts; ++p) {
      for (int64_t c = 0; c < columns; ++c) to[c] += sums[static_cast<size_t>(p * columns + c)];
    }
  }
  return out.reshape(shape).to(a.device());
}

// Sums the terms [n, ...].
at::Tensor SumOfFirst(const at::Tensor& terms, SumOrder order) {
  const int64_t parts = std::clamp<int64_t>(order.parts, 1, std::max<int64_t>(terms.size(0), 1));
  if (terms.numel() == 0) return terms.sum(0);
  if (order.one_by_one && terms.numel() <= kTermsOnHost) {
    return terms.scalar_type() == at::kDouble ? AccumulateOnHost<double>(terms, order)
                                              : AccumulateOnHost<float>(terms, order);
  }
  int64_t steps = CeilOf(terms.size(0), parts);
  const int64_t chunk = order.one_by_one ? CeilOf(steps, kMostSteps) : 1;
  steps = CeilOf(steps, chunk) * chunk;
  std::vector<int64_t> shape = terms.sizes().vec();
  shape.erase(shape.begin());
  auto with = [&](std::vector<int64_t> first) {
    first.insert(first.end(), shape.begin(), shape.end());
    return first;
  };
  const at::Tensor padded = PadFirst(terms, parts * steps);
  at::Tensor by_step = order.strided ? padded.view(with({steps, parts}))
                                     : padded.view(with({parts, steps})).transpose(0, 1);
  if (!order.one_by_one) return Accumulate(by_step.sum(0));
  if (chunk > 1) {
    std::vector<int64_t> split = with({steps / chunk, chunk, parts});
    by_step = by_step.contiguous().view(split).sum(1);
  }
  return Accumulate(Accumulate(by_step));
}

std::vector<int64_t> Dims(const c10::IValue& dims, int64_t rank) {
  std::vector<int64_t> list;
  if (dims.isInt()) list = {dims.toInt()};
  if (dims.isIntList()) list = dims.toIntVector();
  if (list.empty()) {
    list.resize(static_cast<size_t>(rank));
    std::iota(list.begin(), list.end(), 0);
  }
  for (int64_t& d : list) d += d < 0 ? rank : 0;
  std::sort(list.begin(), list.end());
  return list;
}

at::Tensor Drop(at::Tensor tensor, const std::vector<int64_t>& dims) {
  for (size_t i = dims.size(); i-- > 0;) tensor = tensor.squeeze(dims[i]);
  return tensor;
}

int64_t CountOver(const at::Tensor& tensor, const std::vector<int64_t>& dims) {
  int64_t count = 1;
  for (const int64_t d : dims) count *= tensor.size(d);
  return count;
}

bool SumOrMean(Stack* stack, SumOrder order, bool mean) {
  const at::Tensor& self = (*stack)[0].toTensor();
  const bool of_all = stack->size() == 2;
  const auto dims = SummedDims(*stack);
  const c10::IValue& dtype = stack->back();
  const at::ScalarType type = dtype.isInt() ? dtype.toScalarType() : self.scalar_type();
  if (!at::isFloatingType(type) || !at::isFloatingType(self.scalar_type())) return false;
  at::Tensor sum = SumInOrder(InOpMath(self.to(type)), dims, order);
  if (mean) sum = sum / CountOver(self, dims);
  if (of_all || !(*stack)[2].toBool()) sum = Drop(sum, dims);
  *stack = {sum.to(type)};
  return true;
}

bool Variance(Stack* stack, SumOrder order, bool root, bool with_mean) {
  if (stack->size() != 4 || (*stack)[2].isBool()) return false;
  const at::Tensor& self = (*stack)[0].toTensor();
  if (!at::isFloatingType(self.scalar_type())) return false;
  const auto dims = Dims((*stack)[1], self.dim());
  const c10::IValue& correction = (*stack)[2];
  const auto count = static_cast<double>(CountOver(self, dims));
  const double off = correction.isNone() ? 1 : correction.toScalar().toDouble();
  const bool keep = (*stack)[3].toBool();
  const at::Tensor wide = InOpMath(self);
  at::Tensor mean = SumInOrder(wide, dims, order) / count;
  at::Tensor out = SumInOrder((wide - mean).square(), dims, order) / std::max(count - off, 0.0);
  if (root) out = out.sqrt();
  if (!keep) out = Drop(out, dims), mean = Drop(mean, dims);
  const at::ScalarType type = self.scalar_type();
  *stack = {out.to(type)};
  if (with_mean) stack->emplace_back(mean.to(type));
  return true;
}

bool Softmax(Stack* stack, SumOrder order, OpSums sums) {
  const at::Tensor& self = (*stack)[0].toTensor();
  const bool lse = sums == OpSums::kLogSumExp;
  if (!at::isFloatingType(self.scalar_type()) || self.dim() == 0) return false;
  const auto dims = Dims((*stack)[1], self.dim());
  const bool flag = (*stack)[2].toBool();
  const at::Tensor wide = InOpMath(self);
  const at::Tensor most = wide.amax(dims, /*keepdim=*/true);
  const at::Tensor exps = (wide - most).exp();
  const at::Tensor sum = SumInOrder(exps, dims, order);
  at::Tensor out = sums == OpSums::kSoftmax ? exps / sum
                   : lse                    ? sum.log() + most
                                            : wide - most - sum.log();
  if (lse && !flag) out = Drop(out, dims);
  *stack = {out.to(!lse && flag ? wide.scalar_type() : self.scalar_type())};
  return true;
}

bool SoftmaxBackward(Stack* stack, SumOrder order, bool log) {
  const at::Tensor gradient = InOpMath((*stack)[0].toTensor()),
                   output = InOpMath((*stack)[1].toTensor());
  if (gradient.dim() == 0) return false;
  const auto dims = Dims((*stack)[2], gradient.dim());
  const at::ScalarType type = (*stack)[3].toScalarType();
  const at::Tensor sum = SumInOrder(log ? gradient : gradient * output, dims, order);
  *stack = {(log ? gradient - output.exp() * sum : (gradient - sum) * output).to(type)};
  return true;
}

bool Norm(Stack* stack, SumOrder order, bool rms) {
  const at::Tensor self = (*stack)[0].toTensor();
  const auto inside = static_cast<int64_t>((*stack)[1].toIntVector().size());
  std::vector<int64_t> dims;
  for (int64_t d = self.dim() - inside; d < self.dim(); ++d) dims.push_back(d);
  const c10::IValue& eps = (*stack)[rms ? 3 : 4];
  if (!eps.isDouble()) return false;
  const at::Tensor wide = InOpMath(self);
  const auto count = static_cast<double>(CountOver(self, dims));
  const at::Tensor mean = rms ? at::Tensor() : SumInOrder(wide, dims, order) / count;
  const at::Tensor centred = rms ? wide : wide - mean;
  const at::Tensor deviation =
      (SumInOrder(centred.square(), dims, order) / count + eps.toDouble()).rsqrt();
  at::Tensor out = centred * deviation;
  for (const size_t i : {2, 3}) {
    if (rms && i == 3) break;
    if (!(*stack)[i].isTensor() || !(*stack)[i].toTensor().defined()) continue;
    const at::Tensor operand = InOpMath((*stack)[i].toTensor());
    out = i == 2 ? out * operand : out + operand;
  }
  *stack = {out.to(self.scalar_type())};
  if (!rms) stack->emplace_back(mean);
  stack->emplace_back(deviation);
  return true;
}

// Each step is one outer product, or the product of a few.
at::Tensor ProductInOrder(const at::Tensor& a, const at::Tensor& b, SumOrder order) {
  const int64_t inner = a.size(-1);
  if (order.one_by_one && inner > 0 && a.numel() > 0 && a.numel() <= kProductsOnHost / b.size(-1)) {
    return a.scalar_type() == at::kDouble ? MultiplyOnHost<double>(a, b, order)
                                          : MultiplyOnHost<float>(a, b, order);
  }
  const int64_t parts = std::clamp<int64_t>(order.parts, 1, std::max<int64_t>(inner, 1));
  const int64_t steps = CeilOf(inner, parts);
  const int64_t chunk = order.one_by_one ? CeilOf(inner, kMostSteps) : steps;
  at::Tensor sum;
  for (int64_t p = 0; p < parts; ++p) {
    at::Tensor part;
    const int64_t first = order.strided ? p : p * steps;
    const int64_t end = order.strided ? inner : std::min(first + steps, inner);
    const int64_t apart = order.strided ? parts : 1;
    for (int64_t k = first; k < end; k += chunk * apart) {
      const int64_t stop = std::min(k + chunk * apart, end);
      const at::Tensor left = a.slice(-1, k, stop, apart), right = b.slice(-2, k, stop, apart);
      if (!part.defined()) {
        part = left.matmul(right);
      } else if (left.size(-1) == 1) {
        part.addcmul_(left, right);
      } else {
        part.add_(left.matmul(right));
      }
    }
    if (part.defined()) sum = sum.defined() ? sum.add_(part) : part;
  }
  return sum.defined() ? sum : a.matmul(b);
}

bool ProductOf(Stack* stack, SumOrder order, size_t left) {
  const at::Tensor &a = (*stack)[left].toTensor(), &b = (*stack)[left + 1].toTensor();
  const at::ScalarType type = a.scalar_type();
  if (!at::isFloatingType(type)) return false;
  at::Tensor out = ProductInOrder(InOpMath(a), InOpMath(b), order);
  if (left == 1) {
    const double beta = (*stack)[3].toScalar().toDouble(),
                 alpha = (*stack)[4].toScalar().toDouble();
    if (alpha != 1) out = out * alpha;
    if (beta != 0) out = out + InOpMath((*stack)[0].toTensor()) * beta;
  }
  *stack = {out.to(type)};
  return true;
}

// In parts of the input's channels.
bool ConvolutionOf(Stack* stack, SumOrder order) {
  const at::Tensor input = (*stack)[0].toTensor(), weight = (*stack)[1].toTensor();
  const int64_t channels = input.size(1);
  if ((*stack)[6].toBool() || (*stack)[8].toInt() != 1 || channels < 2) return false;
  const int64_t step = order.one_by_one ? CeilOf(channels, 64) : CeilOf(channels, order.parts);
  at::Tensor sum;
  for (int64_t c = 0; c < channels; c += step) {
    const int64_t end = std::min(c + step, channels);
    const at::Tensor part =
        at::convolution(InOpMath(input.slice(1, c, end)), InOpMath(weight.slice(1, c, end)), {},
                        (*stack)[3].toIntVector(), (*stack)[4].toIntVector(),
                        (*stack)[5].toIntVector(), false, (*stack)[7].toIntVector(), 1);
    sum = sum.defined() ? sum.add_(part) : part;
  }
  if ((*stack)[2].isTensor() && (*stack)[2].toTensor().defined()) {
    std::vector<int64_t> shape(static_cast<size_t>(sum.dim()), 1);
    shape[1] = -1;
    sum = sum + InOpMath((*stack)[2].toTensor()).view(shape);
  }
  *stack = {sum.to(input.scalar_type())};
  return true;
}

bool Replace(const OpFacts& facts, Stack* stack, SumOrder order) {
  switch (facts.sums) {
    case OpSums::kNone:
      return false;
    case OpSums::kSum:
    case OpSums::kMean:
      return SumOrMean(stack, order, facts.sums == OpSums::kMean);
    case OpSums::kVariance:
    case OpSums::kDeviation:
      return Variance(stack, order, facts.sums == OpSums::kDeviation, facts.mean == 1);
    case OpSums::kSoftmax:
    case OpSums::kLogSoftmax:
    case OpSums::kLogSumExp:
      return Softmax(stack, order, facts.sums);
    case OpSums::kSoftmaxBackward:
    case OpSums::kLogSoftmaxBackward:
      return SoftmaxBackward(stack, order, facts.sums == OpSums::kLogSoftmaxBackward);
    case OpSums::kMoments:
    case OpSums::kRms:
      return Norm(stack, order, facts.sums == OpSums::kRms);
    case OpSums::kScan:
      return ScanInOrder(stack, order);
    case OpSums::kLoss:
      return LossInOrder(stack, order);
    case OpSums::kProduct:
      return ProductOf(stack, order, static_cast<size_t>(facts.left));
    case OpSums::kConvolution:
      return ConvolutionOf(stack, order);
  }
  return false;
}

}  // namespace

const std::vector<SumOrder>& SumOrders() {
  static const auto* const orders =
      new std::vector<SumOrder>{{1, false, true},  {2, false, false}, {4, false, false, 0, true},
                                {8, false, false}, {16, true, true},  {32, true, true}};
  return *orders;
}

bool HasSums(const OpSignature& signature) {
  return std::any_of(signature.nodes.begin(), signature.nodes.end(),
                     [](const Node& node) { return FactsOf(node.op).sums != OpSums::kNone; });
}

RegionProgram::Instead InOrder(const OpSignature& signature, SumOrder order) {
  return [&signature, order](size_t node, Stack* stack) {
    return Replace(FactsOf(signature.nodes[node].op), stack, order);
  };
}

at::Tensor InOpMath(const at::Tensor& tensor) {
  return tensor.to(at::toOpMathType(tensor.scalar_type()));
}

std::vector<int64_t> SummedDims(const Stack& arguments) {
  const bool of_all = arguments.size() == 2;
  return Dims(of_all ? c10::IValue() : arguments[1], arguments[0].toTensor().dim());
}

at::Tensor SumInOrder(const at::Tensor& terms, at::IntArrayRef dims, SumOrder order) {
  std::vector<int64_t> front, first, kept = terms.sizes().vec();
  int64_t count = 1;
  for (const int64_t d : dims) {
    front.push_back(d);
    count *= terms.size(d);
    kept[static_cast<size_t>(d)] = 1;
  }
  std::vector<int64_t> rest = {count};
  for (int64_t d = 0; d < terms.dim(); ++d) {
    if (std::find(dims.begin(), dims.end(), d) != dims.end()) continue;
    front.push_back(d);
    rest.push_back(terms.size(d));
  }
  return SumOfFirst(terms.permute(front).reshape(rest), order).reshape(kept);
}

}  // namespace cudaforge
