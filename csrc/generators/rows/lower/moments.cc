#include "generators/rows/lower/moments.h"

#include <algorithm>
#include <limits>

namespace cudaforge::rows {
namespace {

// The number of elements of `x` along `dims`.
double CountOver(Graph& g, int x, const std::vector<int>& dims) {
  double count = 1;
  for (int dim : dims) count *= static_cast<double>(g.sizes(x)[static_cast<size_t>(dim)]);
  return count;
}

}  // namespace

int MeanOver(Graph& g, int x, const std::vector<int>& dims) {
  return g.Div(g.Reduce(ReduceOp::kSum, x, dims), g.Like(x, CountOver(g, x, dims)));
}

Moments MomentsOver(Graph& g, int x, const std::vector<int>& dims, double ddof) {
  const double count = CountOver(g, x, dims);
  const int first_mean = MeanOver(g, x, dims);
  const int off = g.Sub(x, first_mean);
  const int sum = g.Reduce(ReduceOp::kSum, off, dims);
  const int squares = g.Reduce(ReduceOp::kSum, g.Mul(off, off), dims);
  const int rest = g.Div(sum, g.Like(x, count));
  const int zero = g.Like(x, 0.0);
  const int without_rest = g.Pointwise(ScalarOp::kMax, {g.Sub(squares, g.Mul(rest, sum)), zero});
  const int infinite =
      g.Pointwise(ScalarOp::kEq, {squares, g.Like(x, std::numeric_limits<double>::infinity())});
  const int scatter = g.Where(infinite, squares, without_rest);  // avoids infinity minus infinity
  // Rounding of the distances is not an error of the mean: it is below a rounding unit of the
  // spread.
  const double unit = g.node(x).type == Type::kF64 ? std::numeric_limits<double>::epsilon()
                                                   : std::numeric_limits<float>::epsilon();
  const int noise = g.Mul(scatter, g.Like(x, unit * unit / count));
  // With an infinite element the rest is NaN and the comparison false, so the mean stays infinite.
  const int correction =
      g.Where(g.Pointwise(ScalarOp::kGt, {g.Mul(rest, rest), noise}), rest, zero);
  return {g.Add(first_mean, correction), g.Div(scatter, g.Like(x, std::max(count - ddof, 0.0))),
          g.Sub(off, correction)};
}

}  // namespace cudaforge::rows
