// Hand-made stages for tests of the CUDA emitter: the forms that reductions, norms, scans and
// pooling lower to.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "generators/rows/emit.h"
#include "tests/cpp/generators/cpu_kernel.h"

namespace cudaforge::rows {

struct BufferShape {
  DType dtype = DType::kFloat32;
  int64_t count = 0;
};

// A stage and the buffers it reads and writes.
struct StageCase {
  std::string name;
  Stage stage;
  std::vector<BufferShape> inputs, outputs;
};

inline OpSignature SignatureOf(const StageCase& c) {
  OpSignature signature;
  signature.device = DeviceType::kCuda;
  for (const BufferShape& b : c.inputs) signature.inputs.push_back({b.dtype, {b.count}, {1}, 16});
  Node node{"aten::case", Json::array(), Json::object(), {}};
  for (const BufferShape& b : c.outputs) node.outputs.push_back({b.dtype, {b.count}, {1}, 1});
  signature.nodes.push_back(std::move(node));
  for (size_t i = 0; i < c.outputs.size(); ++i)
    signature.outputs.push_back({0, static_cast<int>(i)});
  return signature;
}

// Strides of `rows` x `length` in memory: rows contiguous, or columns (the reduced space is
// strided).
struct Layout2 {
  std::vector<int64_t> outer, inner;
};
inline Layout2 RowMajor(int64_t length) { return {{length}, {1}}; }
inline Layout2 ColumnMajor(int64_t rows) { return {{1}, {rows}}; }

inline StageCase SoftmaxCase(int64_t rows, int64_t length, bool columns = false,
                             DType t = DType::kFloat32) {
  StageBuilder b({rows}, {length});
  const Layout2 l = columns ? ColumnMajor(rows) : RowMajor(length);
  const int x = b.Load(0, l.outer, l.inner, t);
  const int max = b.Reduce(ReduceOp::kMax, x);
  const int e = b.Op(ScalarOp::kExp, {b.Op(ScalarOp::kSub, {x, max})});
  const int sum = b.Reduce(ReduceOp::kSum, e);
  b.Store(0, b.Op(ScalarOp::kDiv, {e, sum}), l.outer, l.inner, t);
  return {"softmax", b.stage(), {{t, rows * length}}, {{t, rows * length}}};
}

inline StageCase LayerNormCase(int64_t rows, int64_t length, DType t) {
  StageBuilder b({rows}, {length});
  const int x = b.Load(0, {length}, {1}, t);
  const int n = b.Const(static_cast<double>(length));
  const int mean = b.Op(ScalarOp::kDiv, {b.Reduce(ReduceOp::kSum, x), n});
  const int d = b.Op(ScalarOp::kSub, {x, mean});
  const int var = b.Op(ScalarOp::kDiv, {b.Reduce(ReduceOp::kSum, b.Op(ScalarOp::kMul, {d, d})), n});
  const int rstd = b.Op(ScalarOp::kRsqrt, {b.Op(ScalarOp::kAdd, {var, b.Const(1e-5)})});
  const int weight = b.Load(1, {0}, {1});
  const int bias = b.Load(2, {0}, {1});
  const int y =
      b.Op(ScalarOp::kAdd, {b.Op(ScalarOp::kMul, {b.Op(ScalarOp::kMul, {d, rstd}), weight}), bias});
  b.Store(0, y, {length}, {1}, t);
  b.Store(1, mean, {1}, {0});
  b.Store(2, rstd, {1}, {0});
  return {"layer_norm",
          b.stage(),
          {{t, rows * length}, {DType::kFloat32, length}, {DType::kFloat32, length}},
          {{t, rows * length}, {DType::kFloat32, rows}, {DType::kFloat32, rows}}};
}

// Several reduces that share a sweep.
inline StageCase ReduceCase(std::vector<ReduceOp> ops, int64_t rows, int64_t length, bool columns,
                            DType t = DType::kFloat32) {
  StageBuilder b({rows}, {length});
  const Layout2 l = columns ? ColumnMajor(rows) : RowMajor(length);
  const int x = b.Load(0, l.outer, l.inner, t);
  StageCase c{"reduce", {}, {{t, rows * length}}, {}};
  for (size_t i = 0; i < ops.size(); ++i) {
    const int r = b.Reduce(ops[i], x);
    const bool arg = ops[i] == ReduceOp::kArgMax || ops[i] == ReduceOp::kArgMin;
    const DType to = arg ? DType::kInt64 : t;
    b.Store(static_cast<int>(i), r, {1}, {0}, to);
    c.outputs.push_back({to, rows});
  }
  c.stage = b.stage();
  return c;
}

// A cumulative sum, scaled after the scan by its own row's sum of squares.
inline StageCase ScanCase(int64_t rows, int64_t length, bool columns, DType t = DType::kFloat32) {
  StageBuilder b({rows}, {length});
  const Layout2 l = columns ? ColumnMajor(rows) : RowMajor(length);
  const int x = b.Load(0, l.outer, l.inner, t);
  const Type type = t == DType::kInt64 ? Type::kI64 : Type::kF32;
  const int y = b.Scan(ScanOp::kSum, x);
  b.Store(0, y, l.outer, l.inner, t);
  const int twice = b.Op(ScalarOp::kAdd, {y, x}, type);
  b.Store(1, b.Reduce(ReduceOp::kMax, twice), {1}, {0}, t);
  return {"scan", b.stage(), {{t, rows * length}}, {{t, rows * length}, {t, rows}}};
}

// A reduce over the first and last of three dimensions, as batch norm has it: inner space of two
// dimensions.
inline StageCase BatchCase(int64_t n, int64_t c, int64_t hw) {
  StageBuilder b({c}, {n, hw});
  const int x = b.Load(0, {hw}, {c * hw, 1});
  const int index = b.Op(ScalarOp::kCast, {b.InnerIndex(1)});
  const int y = b.Op(ScalarOp::kAdd, {x, index});
  const int sum = b.Reduce(ReduceOp::kSum, y);
  b.Store(0, b.Op(ScalarOp::kSub, {y, sum}), {hw}, {c * hw, 1});
  return {"batch", b.stage(), {{DType::kFloat32, n * c * hw}}, {{DType::kFloat32, n * c * hw}}};
}

// Max pooling of planes x h x w with a 3x3 window, stride 2, padding 1, and the window's winner.
inline StageCase MaxPoolCase(int64_t planes, int64_t h, int64_t w) {
  const int64_t oh = (h + 1) / 2, ow = (w + 1) / 2;
  StageBuilder b({planes, oh, ow}, {3, 3});
  Access a{
      {{0, {1, 0, 0}, {0, 0}, 1, -1}, {-1, {0, 2, 0}, {1, 0}, 1, h}, {-1, {0, 0, 2}, {0, 1}, 1, w}},
      {h * w, w, 1}};
  const int x = b.Window(0, a, b.Const(-INFINITY));
  b.Store(0, b.Reduce(ReduceOp::kMax, x), {oh * ow, ow, 1}, {0, 0});
  b.Store(1, b.Reduce(ReduceOp::kArgMax, x), {oh * ow, ow, 1}, {0, 0}, DType::kInt64);
  return {"max_pool",
          b.stage(),
          {{DType::kFloat32, planes * h * w}},
          {{DType::kFloat32, planes * oh * ow}, {DType::kInt64, planes * oh * ow}}};
}

// The gradient of 2-wide, stride 2 average pooling along one dimension: a load with a divisor.
inline StageCase AvgPoolBackwardCase(int64_t planes, int64_t w) {
  const int64_t ow = w / 2;
  StageBuilder b({planes, w}, {2});
  Access a{{{0, {1, 0}, {0}, 1, -1}, {0, {0, 1}, {-1}, 2, ow}}, {ow, 1}};
  const int g = b.Window(0, a, b.Const(0));
  const int half = b.Op(ScalarOp::kMul, {b.Reduce(ReduceOp::kSum, g), b.Const(0.5)});
  b.Store(0, half, {w, 1}, {0});
  return {"avg_pool_backward",
          b.stage(),
          {{DType::kFloat32, planes * ow}},
          {{DType::kFloat32, planes * w}}};
}

}  // namespace cudaforge::rows
