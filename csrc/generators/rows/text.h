// Text for both emitters (CUDA and CPU): scalar expressions and index arithmetic. Both preludes
// define the same functions: cf_exp(x), cf_max(x, y), ... for float, double, int64_t and int32_t. A
// bool is `bool`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/text.h"
#include "generators/rows/row_program.h"

namespace cudaforge::rows {

// Lines of kernel text, indented by the braces that they open and close.
class Lines {
 public:
  // Adds one line, concatenated from its parts.
  template <typename... Args>
  void Add(const Args&... args) {
    text_ += Cat(args..., "\n");
  }
  void Append(const Lines& other) { text_ += other.text_; }
  bool empty() const { return text_.empty(); }
  std::string Text() const;

 private:
  std::string text_;  // not indented yet
};

// "float", "double", "int64_t", "int32_t", "bool": the type that a value is computed in.
std::string TypeText(Type type);

// The literal of a kConst value in its type: "0x1.8p+1f", "CF_INF_F32" (also CF_NAN_F32,
// CF_INF_F64, CF_NAN_F64, possibly negated; defined by the preludes), "int64_t(5)", "true".
std::string ConstText(const Value& value);

// The expression of kPointwise value `v`. Operand texts must be primary expressions (names). Calls
// are cf_NAME(a, b); neg, arithmetic and comparisons are operators.
std::string PointwiseText(const Stage& stage, int v, const std::vector<std::string>& operands);

// "offset + c0 * n0 + ...", without zero terms and unit factors; "0" if nothing remains. sizes ==
// names.size().
std::string LinearText(int64_t offset, const std::vector<int64_t>& coefficients,
                       const std::vector<std::string>& names);

// An access without bounds as an offset and a coefficient per loop index, in elements. REQUIRES:
// access.IsLinear().
struct LinearAccess {
  int64_t offset = 0;
  std::vector<int64_t> outer;
  std::vector<int64_t> inner;
};
LinearAccess Linearize(const Access& access);

}  // namespace cudaforge::rows
