// RowProgram: the form between ATen nodes and kernel text. Reductions, softmax, norms, scans,
// pooling and losses are all loops over `outer` positions (rows), each with an `inner` space. A
// program is a list of stages; each becomes one launch. A stage is straight-line SSA. Values that
// depend on a reduce are computed in a later sweep over the inner space. Emitters may recompute
// element values in each sweep, or keep them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "generators/rows/scalar_op.h"
#include "signature/op_signature.h"

namespace cudaforge::rows {

enum class Type { kF32, kF64, kI64, kI32, kBool };  // half types load to and store from kF32
Type ComputeType(DType dtype);
DType StorageOf(Type type);  // the dtype that holds a value exactly in scratch
bool IsFloatType(Type type);
int64_t NumElements(const std::vector<int64_t>& sizes);

enum class Space {
  kConst,    // the same everywhere
  kRow,      // one value per outer position
  kElement,  // one value per (outer, inner) position
};

// One tensor dimension's index: (offset + sum coef * loop index) / div. In bounds if the numerator
// is a multiple of div and 0 <= index < bound. bound < 0: always in bounds, and div == 1.
struct DimIndex {
  int64_t offset = 0;
  std::vector<int64_t> outer_coef;  // one per outer dimension
  std::vector<int64_t> inner_coef;  // one per inner dimension
  int64_t div = 1;
  int64_t bound = -1;
  bool operator==(const DimIndex&) const = default;
};

// The address of a load or store: tensor dimension d contributes dims[d] * strides[d] elements. An
// access without bounds (the common case) is one DimIndex with stride 1 and element strides as
// coefficients.
struct Access {
  std::vector<DimIndex> dims;
  std::vector<int64_t> strides;
  // True if no dimension has a bound: the offset is linear in the loop indices.
  bool IsLinear() const;
  bool operator==(const Access&) const = default;
};

enum class BufferKind { kInput, kOutput, kScratch };
struct BufferRef {
  BufferKind kind = BufferKind::kInput;
  int index = 0;
  bool operator==(const BufferRef&) const = default;
};

enum class ReduceOp { kSum, kProd, kMax, kMin, kArgMax, kArgMin, kAny, kAll };
// kMax and kMin propagate NaN. kArgMax and kArgMin give the flattened inner index (kI64) of the
// first largest or smallest, where NaN counts as both. Sums of kF32 are accurate (several partial
// sums, tree order): never one running sum over a long row.
enum class ScanOp { kSum, kProd };

// A reduce makes a row value from an element value, over the whole inner space in row-major order.
// A scan makes an element value: inclusive, along the flattened inner space. Pointwise values have
// the largest space of their operands.
struct Value {
  // kProduct: a matrix product's sum at this position, only in the epilogue of tiles/contraction.h.
  enum class Kind { kConst, kLoad, kInnerIndex, kOuterIndex, kPointwise, kReduce, kScan, kProduct };
  Kind kind = Kind::kConst;
  Type type = Type::kF32;
  Space space = Space::kConst;

  double number = 0;                // kConst, floating
  int64_t integer = 0;              // kConst, integral and boolean; kProduct: which of several
  BufferRef buffer;                 // kLoad
  DType storage = DType::kFloat32;  // kLoad: type in memory
  int64_t alignment = 16;           // kLoad: minimum alignment of the buffer, in bytes
  Access access;                    // kLoad
  int out_of_bounds = -1;           // kLoad with bounds: the value (a kConst) read outside
  int dim = -1;  // kInnerIndex: inner dimension, or -1 for the flattened index; kOuterIndex: outer
                 // dimension, or -1
  ScalarOp op = ScalarOp::kAdd;      // kPointwise
  ReduceOp reduce = ReduceOp::kSum;  // kReduce
  ScanOp scan = ScanOp::kSum;        // kScan
  std::vector<int> operands;         // earlier values of the same stage
  bool operator==(const Value&) const = default;
};

struct Store {
  BufferRef buffer;
  DType storage = DType::kFloat32;
  Access access;
  int value = 0;  // kRow values are stored once per row, kElement once per element
};

// The sum of an element value over each run of rows, position by position: partial sums of columns.
// Another stage adds them.
struct RunSum {
  int scratch = 0;  // buffer of [runs, row length] elements of the value's type
  int value = 0;
};

struct Stage {
  std::vector<int64_t> outer;  // sizes, row-major order; empty: one row
  std::vector<int64_t> inner;  // sizes, row-major order; empty: one element
  std::vector<Value> values;
  std::vector<Store> stores;
  // Row r is in run r / rows_per_run; the last run may be shorter. Above 1 only with run_sums.
  int64_t rows_per_run = 1;
  std::vector<RunSum> run_sums;

  int64_t rows() const;
  int64_t runs() const;
  int64_t row_length() const;
  bool Has(Value::Kind kind) const;
  // The sweep in which value v is first known: 0 before any reduce, else one more than its deepest
  // reduce or scan operand.
  std::vector<int> SweepOfValues() const;
};

struct Program {
  std::vector<int64_t> scratch_bytes;
  std::vector<Stage> stages;

  // Checks that SSA order, spaces, types, access arities and buffer indices are consistent.
  Status Validate(const OpSignature& signature) const;
  std::string ToString() const;  // for tests and logs
};

// Converts ATen nodes to a program. kUnsupported names the node or layout without a lowering.
Result<Program> Lower(const OpSignature& signature);

}  // namespace cudaforge::rows
