// Integer expressions over a region's sizes, for launch plans: "ceil_div(in0.size1, 256)". Grammar:
// integers, inI.sizeD, inI.strideD, outI.sizeD, + - * / %, unary minus, parentheses, min(a,b),
// max(a,b), ceil_div(a,b). 64-bit; overflow and division by zero are errors. Interpreted, never
// compiled.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "signature/op_signature.h"

namespace cudaforge {

class IntExpr {
 public:
  IntExpr() : text_("0") {}
  IntExpr(int64_t value) : text_(std::to_string(value)) {}
  // Limits: 1,024 characters, nesting 32.
  static Result<IntExpr> Parse(std::string_view text);

  Result<int64_t> Evaluate(const OpSignature& signature) const;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace cudaforge
