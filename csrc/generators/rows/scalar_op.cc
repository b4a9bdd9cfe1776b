#include "generators/rows/scalar_op.h"

#include <algorithm>
#include <iterator>

namespace cudaforge::rows {
namespace {

constexpr ScalarFacts kOps[] = {
    // op, name, text, operands, gives_bool, cost, keep, cpu_cost, rounding
    {ScalarOp::kNeg, "neg", nullptr, 1, false, 1, false, 1, 0},
    {ScalarOp::kAbs, "abs", "cf_abs", 1, false, 1, false, 4, 0},
    {ScalarOp::kExp, "exp", "cf_exp", 1, false, 8, true, 4, 2},
    {ScalarOp::kExpm1, "expm1", "cf_expm1", 1, false, 8, true, 4, 2},
    {ScalarOp::kLog, "log", "cf_log", 1, false, 8, true, 4, 2},
    {ScalarOp::kLog1p, "log1p", "cf_log1p", 1, false, 8, true, 4, 2},
    {ScalarOp::kLog2, "log2", "cf_log2", 1, false, 8, true, 4, 2},
    {ScalarOp::kSqrt, "sqrt", "cf_sqrt", 1, false, 3, true, 4, 2},
    {ScalarOp::kRsqrt, "rsqrt", "cf_rsqrt", 1, false, 3, true, 4, 2},
    {ScalarOp::kReciprocal, "recip", "cf_reciprocal", 1, false, 3, true, 4, 2},
    {ScalarOp::kSin, "sin", "cf_sin", 1, false, 24, true, 4, 2},
    {ScalarOp::kCos, "cos", "cf_cos", 1, false, 24, true, 4, 2},
    {ScalarOp::kTanh, "tanh", "cf_tanh", 1, false, 8, true, 4, 2},
    {ScalarOp::kErf, "erf", "cf_erf", 1, false, 8, true, 4, 2},
    {ScalarOp::kSigmoid, "sigm", "cf_sigmoid", 1, false, 8, true, 4, 2},
    {ScalarOp::kGelu, "gelu", "cf_gelu", 1, false, 12, true, 4, 2},
    {ScalarOp::kGeluTanh, "gelu_tanh", "cf_gelu_tanh", 1, false, 12, true, 4, 2},
    {ScalarOp::kFloor, "floor", "cf_floor", 1, false, 1, true, 4, 0},
    {ScalarOp::kCeil, "ceil", "cf_ceil", 1, false, 1, true, 4, 0},
    {ScalarOp::kRound, "round", "cf_round", 1, false, 1, true, 4, 0},
    {ScalarOp::kTrunc, "trunc", "cf_trunc", 1, false, 1, true, 4, 0},
    {ScalarOp::kSign, "sign", "cf_sign", 1, false, 1, true, 4, 0},
    {ScalarOp::kIsNan, "isnan", "cf_isnan", 1, true, 1, false, 4, 0},
    {ScalarOp::kLogicalNot, "not", nullptr, 1, true, 1, false, 4, 0},
    {ScalarOp::kBitwiseNot, "bitnot", nullptr, 1, false, 1, false, 4, 0},
    {ScalarOp::kAdd, "add", "+", 2, false, 1, false, 1, 1},
    {ScalarOp::kSub, "sub", "-", 2, false, 1, false, 1, 1},
    {ScalarOp::kMul, "mul", "*", 2, false, 1, false, 1, 1},
    {ScalarOp::kDiv, "div", "/", 2, false, 3, true, 4, 1},
    {ScalarOp::kMax, "max", "cf_max", 2, false, 1, false, 4, 0},
    {ScalarOp::kMin, "min", "cf_min", 2, false, 1, false, 4, 0},
    {ScalarOp::kPow, "pow", "cf_pow", 2, false, 24, true, 4, 2},
    {ScalarOp::kRemainder, "rem", "cf_remainder", 2, false, 24, true, 4, 2},
    {ScalarOp::kFmod, "fmod", "cf_fmod", 2, false, 24, true, 4, 2},
    {ScalarOp::kAtan2, "atan2", "cf_atan2", 2, false, 24, true, 4, 2},
    {ScalarOp::kEq, "eq", "==", 2, true, 1, false, 4, 0},
    {ScalarOp::kNe, "ne", "!=", 2, true, 1, false, 4, 0},
    {ScalarOp::kLt, "lt", "<", 2, true, 1, false, 4, 0},
    {ScalarOp::kLe, "le", "<=", 2, true, 1, false, 4, 0},
    {ScalarOp::kGt, "gt", ">", 2, true, 1, false, 4, 0},
    {ScalarOp::kGe, "ge", ">=", 2, true, 1, false, 4, 0},
    {ScalarOp::kAnd, "and", "&", 2, false, 1, false, 4, 0},
    {ScalarOp::kOr, "or", "|", 2, false, 1, false, 4, 0},
    {ScalarOp::kXor, "xor", "^", 2, false, 1, false, 4, 0},
    {ScalarOp::kWhere, "where", nullptr, 3, false, 1, false, 4, 0},
    {ScalarOp::kCast, "cast", nullptr, 1, false, 1, false, 1, 0},
    {ScalarOp::kRoundToHalf, "round_half", "cf_round_to_half", 1, false, 1, true, 4, 0},
    {ScalarOp::kRoundToBF16, "round_bf16", "cf_round_to_bf16", 1, false, 1, true, 4, 0},
};
static_assert(std::size(kOps) == kScalarOps);
static_assert(std::ranges::all_of(kOps, [](const ScalarFacts& facts) {
  return facts.op == static_cast<ScalarOp>(&facts - kOps);
}));

}  // namespace

const ScalarFacts& ScalarFactsOf(ScalarOp op) { return kOps[static_cast<size_t>(op)]; }

}  // namespace cudaforge::rows
