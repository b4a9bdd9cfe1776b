#include "verify/aten_places.h"

#include <algorithm>

#include "signature/op_facts.h"

namespace cudaforge {
namespace {

constexpr int64_t kAtATime = int64_t{1} << 22;

// The dimension that a node sorts along; -1 if equal elements have a fixed order.
int64_t FreeDimension(const Node& node, int64_t rank) {
  auto at = static_cast<size_t>(FactsOf(node.op).axes);
  // "sort.stable" has `stable` before the dimension.
  if (at < node.args.size() && (node.args[at].is_boolean() || node.args[at].is_null())) {
    if (node.args[at].is_boolean() && node.args[at].get<bool>()) return -1;
    ++at;
  }
  if (node.kwargs.contains("stable") && node.kwargs["stable"] == true) return -1;
  const bool given = at < node.args.size() && node.args[at].is_number_integer();
  const int64_t dim = given ? node.args[at].get<int64_t>() : -1;
  return dim < 0 ? dim + rank : dim;
}

bool IsPartRight(const at::Tensor& numbers, const at::Tensor& aten, const at::Tensor& candidate,
                 int64_t dim) {
  const int64_t length = numbers.size(dim);
  if (!at::logical_and(candidate.ge(0), candidate.lt(length)).all().item<bool>()) return false;
  const at::Tensor wanted = numbers.gather(dim, aten), named = numbers.gather(dim, candidate);
  const at::Tensor equal =
      at::logical_or(named.eq(wanted), at::logical_and(named.ne(named), wanted.ne(wanted)));
  if (!equal.all().item<bool>()) return false;
  const at::Tensor ordered = std::get<0>(candidate.sort(dim));
  const int64_t count = ordered.size(dim);
  if (count < 2) return true;
  return ordered.narrow(dim, 1, count - 1).ne(ordered.narrow(dim, 0, count - 1)).all().item<bool>();
}

}  // namespace

bool ArePlacesOfEquals(const OpSignature& signature, size_t output,
                       std::span<const at::Tensor> inputs, const at::Tensor& aten,
                       const at::Tensor& candidate) {
  const auto [number, out] = signature.outputs[output];
  const Node& node = signature.nodes[static_cast<size_t>(number)];
  if (FactsOf(node.op).free_places != out || node.args.empty()) return false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (node.args[0] != Json{{"in", i}}) continue;
    const at::Tensor& numbers = inputs[i];
    const int64_t rank = numbers.dim();
    const int64_t dim = FreeDimension(node, rank);
    if (rank == 0 || dim < 0 || dim >= rank || candidate.dim() != rank) return false;
    if (candidate.numel() == 0) return true;
    // Splits along the longest other dimension.
    int64_t along = -1;
    for (int64_t d = 0; d < rank; ++d) {
      if (d != dim && (along < 0 || numbers.size(d) > numbers.size(along))) along = d;
    }
    if (along < 0) return IsPartRight(numbers, aten, candidate, dim);
    const int64_t rows = numbers.size(along);
    const int64_t step = std::max<int64_t>(kAtATime / (numbers.numel() / rows), 1);
    for (int64_t row = 0; row < rows; row += step) {
      const int64_t some = std::min(step, rows - row);
      if (!IsPartRight(numbers.narrow(along, row, some), aten.narrow(along, row, some),
                       candidate.narrow(along, row, some), dim)) {
        return false;
      }
    }
    return true;
  }
  return false;
}

}  // namespace cudaforge
