// The scalar arithmetic of row programs: one row of facts an operation.
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
  // What it is in kernel text: a function of both preludes ("cf_exp") or an operator ("+"); nullptr
  // for those that PointwiseText (emit_text.h) writes in ways of their own.
  const char* text;
  size_t operands;
  bool gives_bool;  // the others give their operands' type, or the cast's
  int cost;         // in additions, roughly: for RowCost
  bool keep;        // whether a CUDA kernel keeps its values rather than compute them again
  int cpu_cost;     // of doing it again in a CPU kernel, which keeps values that add up to 4
  // How far its own rounding may differ between two right kernels, on floating types: 0 where
  // nothing is rounded, 1 where IEEE 754 says how, 2 for what depends on order or on a library.
  int rounding;
};
const ScalarFacts& ScalarFactsOf(ScalarOp op);

}  // namespace cudaforge::rows
