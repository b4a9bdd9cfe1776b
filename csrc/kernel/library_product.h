// A matrix product by NVIDIA's library: the JSON that is the code of a candidate of language
// `library`, parsed with limits and checked against a signature. docs/formats.md lists its fields.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "signature/op_signature.h"

namespace cudaforge {

// A matrix of the region's input or output `index`, or one for each of a batch. Strides in
// elements. `row` is the distance from one row to the next; one of `row` and `column` is 1.
struct LibraryMatrix {
  int index = 0;
  int64_t row = 0;
  int64_t column = 1;
  int64_t batch = 0;      // 0: all of the batch have the same matrix
  int64_t alignment = 1;  // of the buffer, in bytes

  // The distance from one row or column to the next, whichever is not 1.
  int64_t lead() const { return column == 1 ? row : column; }
};

// D = alpha * A B + beta * C + bias, with sums in float32. A is m x k, B is k x n. D's rows are
// contiguous.
struct LibraryProduct {
  static constexpr int kMaxPlace = 15;

  DType dtype = DType::kFloat32;  // of all operands
  bool tf32 = false;              // float32 operands may be rounded to TF32
  int64_t batch = 1, m = 0, n = 0, k = 0;
  double alpha = 1, beta = 0;
  LibraryMatrix a, b, d;
  std::optional<LibraryMatrix> c;  // if and only if beta is not 0
  std::optional<int> bias;         // the input with one number for each column of D
  int64_t workspace_bytes = 0;     // at most
  // Which of the library's algorithms, in the order of their times on the device that compiles.
  int place = 0;

  Json ToJson() const;
  // kInvalidArgument: other JSON, or over the limits: sizes below 2^31, strides up to 2^31 (of a
  // batch 2^40), a batch up to 2^20, kMaxPlace, 256 MiB of workspace.
  static Result<LibraryProduct> Parse(std::string_view code);
  // kInvalidArgument: a buffer that does not exist, has another type, is smaller than its matrices
  // or less aligned than they say; more than one output.
  Status Validate(const OpSignature& signature) const;
};

}  // namespace cudaforge
