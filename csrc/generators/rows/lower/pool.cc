// Max and average pooling over one to three spatial dimensions. Forward: one row per output
// position, with its window. Backward: one row per input position, with the windows that contain
// it.
#include <algorithm>
#include <limits>

#include "generators/rows/lower/node.h"

namespace cudaforge::rows {
namespace {

struct Pool {
  size_t spatial = 0, lead = 0;
  std::vector<int64_t> in, out;  // spatial sizes
  std::vector<int64_t> kernel, stride, padding, dilation;
  std::vector<int> window;  // the window's dimensions in a windowed view
  bool bounded = false;     // some window reaches outside the input
};

// Reads the window. `sizes`, `out_sizes`: of the pooled input and the output. The lists in the
// schema start at `first`. dilation < 0: the op has none.
bool ReadPool(NodeReader& r, size_t spatial, const std::vector<int64_t>& sizes,
              const std::vector<int64_t>& out_sizes, size_t first, bool dilated, Pool& pool) {
  auto list = [&](size_t position, const char* name, const std::vector<int64_t>& absent) {
    std::vector<int64_t> values = r.Ints(position, name);
    if (values.empty()) values = absent;
    if (values.size() == 1) values.assign(spatial, values[0]);
    return values;
  };
  pool.spatial = spatial;
  pool.kernel = list(first, "kernel_size", {});
  pool.stride = list(first + 1, "stride", pool.kernel);
  pool.padding = list(first + 2, "padding", {0});
  pool.dilation = dilated ? list(first + 3, "dilation", {1}) : std::vector<int64_t>(spatial, 1);
  if (sizes.size() < spatial || out_sizes.size() != sizes.size()) r.Fail("ranks do not match");
  for (const auto* values : {&pool.kernel, &pool.stride, &pool.padding, &pool.dilation}) {
    constexpr int64_t kLargest = int64_t{1} << 20;
    const bool fits = std::all_of(values->begin(), values->end(),
                                  [](int64_t v) { return v >= 0 && v <= kLargest; });
    const bool positive =
        values == &pool.padding || std::count(values->begin(), values->end(), 0) == 0;
    if (values->size() != spatial || !fits || !positive) r.Fail("an invalid window");
  }
  if (!r.ok()) return false;
  pool.lead = sizes.size() - spatial;
  for (size_t s = 0; s < spatial; ++s) {
    pool.in.push_back(sizes[pool.lead + s]);
    pool.out.push_back(out_sizes[pool.lead + s]);
    pool.window.push_back(static_cast<int>(sizes.size() + s));
    const int64_t last = (pool.out[s] - 1) * pool.stride[s] +
                         (pool.kernel[s] - 1) * pool.dilation[s] - pool.padding[s];
    pool.bounded = pool.bounded || pool.padding[s] > 0 || last >= pool.in[s];
  }
  return true;
}

std::vector<ViewDim> LeadingDims(const Pool& pool) {
  std::vector<ViewDim> dims(pool.lead + pool.spatial);
  for (size_t d = 0; d < dims.size(); ++d) {
    dims[d].coef.assign(pool.lead + 2 * pool.spatial, 0);
    dims[d].coef[d] = 1;
  }
  return dims;
}

std::vector<int64_t> WindowedSizes(const Graph& g, int x, const Pool& pool,
                                   const std::vector<int64_t>& spatial) {
  std::vector<int64_t> sizes(g.sizes(x).begin(),
                             g.sizes(x).begin() + static_cast<std::ptrdiff_t>(pool.lead));
  sizes.insert(sizes.end(), spatial.begin(), spatial.end());
  sizes.insert(sizes.end(), pool.kernel.begin(), pool.kernel.end());
  return sizes;
}

// x[.., in] as [.., out, window], with `outside` for positions outside the input.
int Windows(Graph& g, int x, const Pool& pool, double outside) {
  std::vector<ViewDim> dims = LeadingDims(pool);
  for (size_t s = 0; s < pool.spatial; ++s) {
    ViewDim& dim = dims[pool.lead + s];
    dim.offset = -pool.padding[s];
    dim.coef[pool.lead + s] = pool.stride[s];
    dim.coef[pool.lead + pool.spatial + s] = pool.dilation[s];
    if (pool.bounded) dim.bound = pool.in[s];
  }
  const int fill = pool.bounded ? g.Like(x, outside) : -1;
  return g.View(x, WindowedSizes(g, x, pool, pool.out), std::move(dims), fill);
}

// x[.., out] as [.., in, window]: the value of the output position whose window has the input
// position at that place.
int WindowsOfInput(Graph& g, int x, const Pool& pool, double outside) {
  std::vector<ViewDim> dims = LeadingDims(pool);
  for (size_t s = 0; s < pool.spatial; ++s) {
    ViewDim& dim = dims[pool.lead + s];
    dim.offset = pool.padding[s];
    dim.coef[pool.lead + pool.spatial + s] = -pool.dilation[s];
    dim.div = pool.stride[s];
    dim.bound = pool.out[s];
  }
  return g.View(x, WindowedSizes(g, x, pool, pool.in), std::move(dims), g.Like(x, outside));
}

int Max(Graph& g, int a, int b) { return g.Pointwise(ScalarOp::kMax, {a, b}); }
int Min(Graph& g, int a, int b) { return g.Pointwise(ScalarOp::kMin, {a, b}); }

// The start of window s by output position, as a value that broadcasts with [.., out].
int WindowStart(Graph& g, const Pool& pool, size_t s, size_t rank) {
  const int at = g.Iota(static_cast<int>(rank), static_cast<int>(pool.lead + s), pool.out[s]);
  return g.Sub(g.Mul(at, g.Integer(pool.stride[s])), g.Integer(pool.padding[s]));
}

template <size_t spatial>
void MaxPool(NodeReader& r) {
  Graph& g = r.g();
  const Tensor self = r.TensorArg(0, "self");
  if (!IsFloating(self.dtype)) return r.Fail("has no lowering for integers");
  const int x = r.Exact(self);
  Pool pool;
  if (!ReadPool(r, spatial, g.sizes(x), r.spec().sizes, 1, true, pool)) return;
  const double low = -std::numeric_limits<double>::infinity();
  const int windows = Windows(g, x, pool, low);
  const int top = g.Reduce(ReduceOp::kMax, windows, pool.window);
  r.Result(0, g.Squeeze(top, pool.window), true);

  // The index of the first largest element, or of the last NaN, as in ATen's loop.
  const size_t rank = pool.lead + 2 * spatial;
  int place = -1;
  for (size_t s = 0; s < spatial; ++s) {
    const int at = g.Iota(static_cast<int>(rank), pool.window[s], pool.kernel[s]);
    place = place < 0 ? at : g.Add(g.Mul(place, g.Integer(pool.kernel[s])), at);
  }
  const int nan_place = g.Where(g.Unary(ScalarOp::kIsNan, windows), place, g.Integer(-1));
  const int last_nan = g.Reduce(ReduceOp::kMax, nan_place, pool.window);
  const int first_max = g.Reduce(ReduceOp::kArgMax, windows, pool.window);
  const int is_nan = g.Pointwise(ScalarOp::kGe, {last_nan, g.Integer(0)});
  int rest = g.Where(is_nan, last_nan, first_max);
  const int nothing = g.Pointwise(ScalarOp::kEq, {top, g.Like(x, low)});
  int index = -1;
  std::vector<int> position(spatial);
  for (size_t s = spatial; s-- > 0;) {
    const int kernel = g.Integer(pool.kernel[s]);
    const int high = g.Div(rest, kernel);
    int at = g.Sub(rest, g.Mul(high, kernel));
    rest = high;
    const int start = WindowStart(g, pool, s, rank);
    if (pool.bounded) {
      // In a window of minus infinities, the first element inside counts, not the padding before
      // it.
      const int missing = Max(g, g.Sub(g.Integer(pool.dilation[s] - 1), start), g.Integer(0));
      at = g.Where(nothing, g.Div(missing, g.Integer(pool.dilation[s])), at);
    }
    position[s] = g.Add(start, g.Mul(at, g.Integer(pool.dilation[s])));
  }
  for (size_t s = 0; s < spatial; ++s) {
    index = s == 0 ? position[s] : g.Add(g.Mul(index, g.Integer(pool.in[s])), position[s]);
  }
  r.Result(1, g.Squeeze(index, pool.window));
}

// The divisor of an average, by output position; -1 with `constant` set if it is the same
// everywhere.
int Divisor(NodeReader& r, const Pool& pool, size_t rank, bool include_pad, int64_t override_by,
            double& constant) {
  Graph& g = r.g();
  constant = 1;
  for (int64_t k : pool.kernel) constant *= static_cast<double>(k);
  if (override_by != 0) constant = static_cast<double>(override_by);
  if (override_by != 0 || !pool.bounded) return -1;
  int count = -1;
  for (size_t s = 0; s < pool.spatial; ++s) {
    const int start = WindowStart(g, pool, s, rank);
    const int end =
        Min(g, g.Add(start, g.Integer(pool.kernel[s])), g.Integer(pool.in[s] + pool.padding[s]));
    int length = g.Sub(end, start);
    if (!include_pad) {
      length = g.Sub(Min(g, end, g.Integer(pool.in[s])), Max(g, start, g.Integer(0)));
    }
    count = count < 0 ? length : g.Mul(count, length);
  }
  return Max(g, count, g.Integer(1));
}

struct AverageArgs {
  bool include_pad;
  int64_t divisor;
};

AverageArgs ReadAverage(NodeReader& r, size_t position) {
  return {r.Flag(position, "count_include_pad", true), r.Int(position + 1, "divisor_override", 0)};
}

template <size_t spatial>
void AvgPool(NodeReader& r) {
  Graph& g = r.g();
  if (!IsFloatType(r.type())) return r.Fail("has no lowering for integers");
  const int x = r.As(r.TensorArg(0, "self"), r.type());
  const AverageArgs args = ReadAverage(r, 5);
  Pool pool;
  if (!ReadPool(r, spatial, g.sizes(x), r.spec().sizes, 1, false, pool)) return;
  const int sum = g.Reduce(ReduceOp::kSum, Windows(g, x, pool, 0), pool.window);
  double constant;
  const int divisor =
      Divisor(r, pool, pool.lead + 2 * spatial, args.include_pad, args.divisor, constant);
  const int mean =
      g.Div(sum, divisor < 0 ? g.Like(sum, constant) : g.Cast(divisor, g.node(sum).type));
  r.Result(0, g.Squeeze(mean, pool.window));
}

template <size_t spatial>
void AvgPoolBackward(NodeReader& r) {
  Graph& g = r.g();
  const Tensor gradient = r.TensorArg(0, "grad_output");
  const Tensor self = r.TensorArg(1, "self");
  if (!IsFloatType(r.type())) return r.Fail("has no lowering for integers");
  int grad = r.As(gradient, r.type());
  const AverageArgs args = ReadAverage(r, 6);
  Pool pool;
  if (!ReadPool(r, spatial, g.sizes(self.node), g.sizes(grad), 2, false, pool)) return;
  double constant;
  const int divisor =
      Divisor(r, pool, pool.lead + spatial, args.include_pad, args.divisor, constant);
  if (divisor >= 0) grad = g.Div(grad, g.Cast(divisor, g.node(grad).type));
  int sum = g.Reduce(ReduceOp::kSum, WindowsOfInput(g, grad, pool, 0), pool.window);
  if (divisor < 0) sum = g.Div(sum, g.Like(sum, constant));
  r.Result(0, g.Squeeze(sum, pool.window));
}

template <size_t spatial>
void MaxPoolBackward(NodeReader& r) {
  Graph& g = r.g();
  const Tensor self = r.TensorArg(1, "self");
  const Tensor indices = r.TensorArg(7, "indices");
  const int grad = r.As(r.TensorArg(0, "grad_output"), r.type());
  if (!IsFloatType(r.type()) || indices.dtype != DType::kInt64) return r.Fail("unexpected types");
  Pool pool;
  if (!ReadPool(r, spatial, g.sizes(self.node), g.sizes(grad), 2, true, pool)) return;
  const size_t rank = pool.lead + 2 * spatial;
  int here = -1;
  for (size_t s = 0; s < spatial; ++s) {
    const int at = g.Iota(static_cast<int>(rank), static_cast<int>(pool.lead + s), pool.in[s]);
    here = here < 0 ? at : g.Add(g.Mul(here, g.Integer(pool.in[s])), at);
  }
  const int chosen = g.Pointwise(ScalarOp::kEq, {WindowsOfInput(g, indices.node, pool, -1), here});
  const int from = g.Where(chosen, WindowsOfInput(g, grad, pool, 0), g.Like(grad, 0));
  r.Result(0, g.Squeeze(g.Reduce(ReduceOp::kSum, from, pool.window), pool.window));
}

}  // namespace

const LowerTable& PoolTable() {
  static const LowerTable kTable = {
      {"aten::max_pool2d_with_indices", MaxPool<2>},
      {"aten::max_pool3d_with_indices", MaxPool<3>},
      {"aten::max_pool2d_with_indices_backward", MaxPoolBackward<2>},
      {"aten::max_pool3d_with_indices_backward", MaxPoolBackward<3>},
      {"aten::avg_pool1d", AvgPool<1>},
      {"aten::avg_pool2d", AvgPool<2>},
      {"aten::avg_pool3d", AvgPool<3>},
      {"aten::avg_pool2d_backward", AvgPoolBackward<2>},
      {"aten::avg_pool3d_backward", AvgPoolBackward<3>},
  };
  return kTable;
}

}  // namespace cudaforge::rows
