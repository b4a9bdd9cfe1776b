// Text that the CUDA and CPU emitters share: scalar expressions and index arithmetic. Both preludes
// define the same functions for what C++ has no operator for: cf_exp(x), cf_max(x, y), ... with
// overloads for float, double, int64_t and int32_t where they make sense; a bool is `bool`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/text.h"
#include "generators/row_program.h"

namespace cudaforge::rows {

// Lines of kernel text, indented by the braces that they open and close.
class Lines {
 public:
  // One line, put together from its parts.
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
// CF_INF_F64, CF_NAN_F64, negated where needed; the preludes define them), "int64_t(5)", "true".
std::string ConstText(const Value& value);

// The expression of kPointwise value `v` over its operands' texts, which must be primary
// expressions (names). Calls look like cf_NAME(a, b): neg and the arithmetic and comparison
// operators are written as operators.
std::string PointwiseText(const Stage& stage, int v, const std::vector<std::string>& operands);

// "offset + c0 * n0 + ...", with zero terms and unit factors left out; "0" when nothing is left.
// sizes == names.size().
std::string LinearText(int64_t offset, const std::vector<int64_t>& coefficients,
                       const std::vector<std::string>& names);

// An access without bounds as one offset and one coefficient per loop index, in elements. REQUIRES:
// access.IsLinear().
struct LinearAccess {
  int64_t offset = 0;
  std::vector<int64_t> outer;
  std::vector<int64_t> inner;
};
LinearAccess Linearize(const Access& access);

}  // namespace cudaforge::rows
