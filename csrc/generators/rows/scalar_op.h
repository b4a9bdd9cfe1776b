// The scalar operations of row programs: a table row for each.
#pragma once

#include <cstddef>

namespace cudaforge::rows {

enum class ScalarOp {
  // unary
  kNeg,
  kAbs,
  kExp,
  kExpm1,
  kLog,
  kLog1p,
  kLog2,
  kSqrt,
  kRsqrt,
  kReciprocal,
  kSin,
  kCos,
  kTanh,
  kErf,
  kSigmoid,
  kGelu,      // x (1 + erf(x / sqrt(2))) / 2
  kGeluTanh,  // its approximation by tanh, as ATen's
  kFloor,
  kCeil,
  kRound,
  kTrunc,
  kSign,
  kIsNan,
  kLogicalNot,
  kBitwiseNot,
  // binary; max and min propagate NaN
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMax,
  kMin,
  kPow,
  kRemainder,
  kFmod,
  kAtan2,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kAnd,
  kOr,
  kXor,
  // ternary: condition, then, else
  kWhere,
  kCast,         // to `type`, C rules; to kBool: != 0
  kRoundToHalf,  // kF32 rounded to float16 and back
  kRoundToBF16,  // kF32 rounded to bfloat16 and back
};
inline constexpr int kScalarOps = static_cast<int>(ScalarOp::kRoundToBF16) + 1;

struct ScalarFacts {
  ScalarOp op;
  const char* name;  // in Program::ToString
  // In kernel text: a function of both preludes ("cf_exp") or an operator ("+"). nullptr:
  // PointwiseText (text.h) has special code.
  const char* text;
  size_t operands;
  bool gives_bool;  // else the result has the operands' type, or the cast's
  int cost;         // in additions, roughly; for RowCost
  bool keep;        // a CUDA kernel keeps its values rather than recompute them
  int cpu_cost;     // of recomputing it in a CPU kernel, which keeps values above a total of 4
  // How far its rounding may differ between two correct kernels, on floating types. 0: no rounding.
  // 1: IEEE 754 defines it. 2: depends on order or a library.
  int rounding;
};
const ScalarFacts& ScalarFactsOf(ScalarOp op);

}  // namespace cudaforge::rows
