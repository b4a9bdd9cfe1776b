#include "verify/aten_derive.h"

#include <algorithm>
#include <functional>
#include <new>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "signature/op_facts.h"

namespace cudaforge {
namespace {

// Elements in a block; several float64 copies of it exist.
constexpr int64_t kBlockElements = int64_t{1} << 22;
constexpr double kEpsilon = 1e-5;

// One node's arguments, with its region inputs as tensors.
class DerivedArguments {
 public:
  DerivedArguments(const Node& node, std::span<at::Tensor> inputs) : node_(node), inputs_(inputs) {}

  // The tensor if the argument is a non-empty input of the region.
  std::optional<at::Tensor> Input(size_t position) const {
    if (position >= node_.args.size()) return std::nullopt;
    const Json& argument = node_.args[position];
    if (!argument.is_object() || !argument.contains("in")) return std::nullopt;
    const at::Tensor& tensor = inputs_[argument["in"].get<size_t>()];
    if (tensor.numel() == 0) return std::nullopt;
    return tensor;
  }
  int64_t Int(size_t position) const { return node_.args.at(position).get<int64_t>(); }
  bool Bool(size_t position) const { return node_.args.at(position).get<bool>(); }
  std::vector<int64_t> Ints(size_t position) const {
    return node_.args.at(position).get<std::vector<int64_t>>();
  }
  void Write(size_t position, const at::Tensor& value) const {
    const std::optional<at::Tensor> target = Input(position);
    if (target.has_value()) target->copy_(value.reshape(target->sizes()));
  }

 private:
  const Node& node_;
  const std::span<at::Tensor> inputs_;
};

using Blocks = std::vector<at::Tensor>;

// Calls body with corresponding blocks of `tensors`, which have equal ranks. The first is halved
// along its longest dimensions, the others where they have that size.
void ForBlocks(const Blocks& tensors, const std::function<void(const Blocks&)>& body) {
  const at::Tensor& first = tensors[0];
  if (first.numel() <= kBlockElements) return body(tensors);
  int64_t dim = 0;
  for (int64_t d = 1; d < first.dim(); ++d) {
    if (first.size(d) > first.size(dim)) dim = d;
  }
  const int64_t size = first.size(dim);
  for (const auto& [begin, end] : {std::pair(int64_t{0}, size / 2), {size / 2, size}}) {
    Blocks half;
    for (const at::Tensor& tensor : tensors) {
      half.push_back(tensor.size(dim) == size ? tensor.narrow(dim, begin, end - begin) : tensor);
    }
    ForBlocks(half, body);
  }
}

// Sums over `dims` in float64 (kept with size 1) of `term`(block, same block of `with`). `with`
// undefined: none.
at::Tensor SumsOf(const at::Tensor& x, const std::vector<int64_t>& dims, const at::Tensor& with,
                  const std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>& term) {
  std::vector<int64_t> sizes = x.sizes().vec();
  for (const int64_t dim : dims) sizes[static_cast<size_t>(dim)] = 1;
  const at::Tensor sums = at::zeros(sizes, x.options().dtype(at::kDouble));
  // If nothing is summed, dimensions have size 1, the input's size.
  ForBlocks({x, sums, with.defined() ? with : sums}, [&](const Blocks& block) {
    const at::Tensor wide = block[0].to(at::kDouble);
    const at::Tensor& sum = block[1];
    sum.add_(term(wide, block[2]).sum(dims, /*keepdim=*/true));
  });
  return sums;
}

int64_t CountAlong(const at::Tensor& x, const std::vector<int64_t>& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1},
                         [&](int64_t n, int64_t dim) { return n * x.size(dim); });
}

// Writes the mean and the reciprocal deviation over `dims`.
void WriteMoments(const DerivedArguments& arguments, const at::Tensor& x,
                  const std::vector<int64_t>& dims, size_t mean_at, size_t deviation_at) {
  const auto count = static_cast<double>(CountAlong(x, dims));
  const at::Tensor mean =
      SumsOf(x, dims, {}, [](const at::Tensor& wide, const at::Tensor&) { return wide; }) / count;
  const at::Tensor squares =
      SumsOf(x, dims, mean, [](const at::Tensor& wide, const at::Tensor& of_block) {
        return (wide - of_block).square();
      });
  arguments.Write(mean_at, mean);
  arguments.Write(deviation_at, (squares / count + kEpsilon).rsqrt());
}

std::vector<int64_t> LastDims(const at::Tensor& x, int64_t number) {
  std::vector<int64_t> dims(static_cast<size_t>(number));
  std::iota(dims.begin(), dims.end(), x.dim() - number);
  return dims;
}

void DeriveMoments(const OpFacts& facts, const DerivedArguments& arguments) {
  const auto input = arguments.Input(1);
  if (!input.has_value()) return;
  if (facts.needs == OpNeeds::kTrailing) {
    const auto dims = LastDims(*input, static_cast<int64_t>(arguments.Ints(2).size()));
    return WriteMoments(arguments, *input, dims, 3, 4);
  }
  if (input->dim() < 2) return;
  if (facts.needs == OpNeeds::kGroup) {
    const int64_t groups = arguments.Int(8);
    const at::Tensor grouped = input->unflatten(1, {groups, input->size(1) / groups});
    return WriteMoments(arguments, grouped, LastDims(grouped, grouped.dim() - 2), 2, 3);
  }
  std::vector<int64_t> dims = LastDims(*input, input->dim() - 2);
  dims.insert(dims.begin(), 0);
  WriteMoments(arguments, *input, dims, 5, 6);
}

void DeriveRms(const DerivedArguments& arguments) {
  const auto input = arguments.Input(1);
  if (!input.has_value()) return;
  const auto dims = LastDims(*input, static_cast<int64_t>(arguments.Ints(2).size()));
  const at::Tensor squares = SumsOf(
      *input, dims, {}, [](const at::Tensor& wide, const at::Tensor&) { return wide.square(); });
  const auto count = static_cast<double>(CountAlong(*input, dims));
  arguments.Write(3, (squares / count + kEpsilon).rsqrt());
}

// The drawn numbers are odds, or their logarithms, near 0. This makes them probabilities that sum
// to one.
void DeriveSoftmax(const DerivedArguments& arguments, bool logarithms) {
  const auto output = arguments.Input(1);
  if (!output.has_value() || output->dim() == 0) return;
  const int64_t dim = (arguments.Int(2) + output->dim()) % output->dim();
  const at::Tensor sums = SumsOf(
      *output, {dim}, {},
      [&](const at::Tensor& wide, const at::Tensor&) { return logarithms ? wide.exp() : wide; });
  ForBlocks({*output, sums}, [&](const Blocks& block) {
    const at::Tensor wide = block[0].to(at::kDouble);
    block[0].copy_(logarithms ? wide - block[1].log() : wide / block[1]);
  });
}

// Samples and channels are pooled separately.
void DerivePlaces(const DerivedArguments& arguments, int64_t spatial) {
  const auto input = arguments.Input(1);
  const auto places = arguments.Input(7);
  if (!input.has_value() || !places.has_value()) return;
  const auto pool = [&](const at::Tensor& x) {
    const auto of = [&](auto&& call) {
      return std::get<1>(call(x, arguments.Ints(2), arguments.Ints(3), arguments.Ints(4),
                              arguments.Ints(5), arguments.Bool(6)));
    };
    if (spatial == 2)
      return of([](auto&&... args) { return at::max_pool2d_with_indices(args...); });
    return of([](auto&&... args) { return at::max_pool3d_with_indices(args...); });
  };
  const int64_t samples = input->dim() > spatial ? input->size(0) : 1;
  const int64_t each = std::max<int64_t>(input->numel() / samples, 1);
  const int64_t together = std::max<int64_t>(kBlockElements / each, 1);
  for (int64_t begin = 0; begin < samples; begin += together) {
    const int64_t n = std::min(together, samples - begin);
    places->narrow(0, begin, n).copy_(pool(input->narrow(0, begin, n)));
  }
}

void DeriveInPlace(const OpFacts& facts, const DerivedArguments& arguments) {
  switch (facts.saved) {
    case Saved::kNothing:
      return;
    case Saved::kMoments:
      return DeriveMoments(facts, arguments);
    case Saved::kRms:
      return DeriveRms(arguments);
    case Saved::kSoftmax:
      return DeriveSoftmax(arguments, /*logarithms=*/false);
    case Saved::kLogSoftmax:
      return DeriveSoftmax(arguments, /*logarithms=*/true);
    case Saved::kPlacesOfMaxima2d:
      return DerivePlaces(arguments, 2);
    case Saved::kPlacesOfMaxima3d:
      return DerivePlaces(arguments, 3);
  }
}

}  // namespace

Status DeriveInputs(const OpSignature& signature, std::span<at::Tensor> inputs) {
  if (inputs.size() != signature.inputs.size()) {
    return Status::InvalidArgument("one tensor for each input");
  }
  const at::NoGradGuard no_grad;
  for (const Node& node : signature.nodes) {
    try {
      DeriveInPlace(FactsOf(node.op), DerivedArguments(node, inputs));
    } catch (const c10::OutOfMemoryError& error) {
      return Status::NoMemory(std::string("inputs for ") + node.op + ": " +
                              error.what_without_backtrace());
    } catch (const std::bad_alloc&) {
      return Status::NoMemory("inputs for " + node.op);
    } catch (const std::exception& error) {
      return Status::Unsupported("inputs for " + node.op + ": " + error.what());
    }
  }
  return Status::Ok();
}

}  // namespace cudaforge
