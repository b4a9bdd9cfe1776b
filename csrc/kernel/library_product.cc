#include "kernel/library_product.h"

#include <algorithm>
#include <cmath>

#include "base/integers.h"

namespace cudaforge {
namespace {

constexpr size_t kMaxProductBytes = 8192;
constexpr int64_t kMaxProductSize = int64_t{1} << 40;
constexpr int64_t kMaxProductBatch = int64_t{1} << 20;
// Products of these limits stay below 2^63.
constexpr int64_t kMaxLead = int64_t{1} << 31;
constexpr int64_t kMaxWorkspace = int64_t{256} << 20;
constexpr int64_t kMaxMatrixAlignment = 16;  // no algorithm needs more
constexpr int64_t kBiasAlignment = 16;

Status Bad(const std::string& what) {
  return Status::InvalidArgument("candidate: a library's product: " + what);
}

Result<int64_t> IntIn(const Json& json, const char* field, int64_t low, int64_t high) {
  CF_ASSIGN_OR_RETURN(const int64_t value, JsonInt(json, field));
  if (value >= low && value <= high) return value;
  return Bad(std::string(field) + ": from " + std::to_string(low) + " to " + std::to_string(high));
}

Json MatrixToJson(const LibraryMatrix& matrix, const char* of) {
  return {{of, matrix.index},
          {"row", matrix.row},
          {"column", matrix.column},
          {"batch", matrix.batch},
          {"alignment", matrix.alignment}};
}

Result<LibraryMatrix> MatrixFromJson(const Json& json, const char* name, const char* of) {
  CF_ASSIGN_OR_RETURN(const Json fields, JsonField(json, name));
  LibraryMatrix matrix;
  CF_ASSIGN_OR_RETURN(const int64_t index, IntIn(fields, of, 0, 63));
  matrix.index = static_cast<int>(index);
  CF_ASSIGN_OR_RETURN(matrix.row, IntIn(fields, "row", 1, kMaxProductSize));
  CF_ASSIGN_OR_RETURN(matrix.column, IntIn(fields, "column", 1, kMaxProductSize));
  CF_ASSIGN_OR_RETURN(matrix.batch, IntIn(fields, "batch", 0, kMaxProductSize));
  CF_ASSIGN_OR_RETURN(matrix.alignment, IntIn(fields, "alignment", 1, kMaxMatrixAlignment));
  if (!IsPowerOfTwo(matrix.alignment)) return Bad("alignment: a power of two");
  return matrix;
}

// Checks that `rows` x `columns` matrices are inside of a buffer. `written`: that they do not
// overlap either.
Status CheckMatrix(const LibraryProduct& product, const LibraryMatrix& matrix, int64_t rows,
                   int64_t columns, const TensorSpec& buffer, bool written) {
  if (buffer.dtype != product.dtype) return Bad("a buffer with a different type");
  const bool by_rows = matrix.column == 1;
  if (!by_rows && (written || matrix.row != 1)) return Bad("gaps between elements");
  if (matrix.lead() < (by_rows ? columns : rows)) return Bad("rows or columns overlap");
  if (matrix.alignment % DTypeSize(product.dtype) != 0) return Bad("alignment below the element's");
  if (matrix.lead() > kMaxLead) return Bad("rows or columns too far apart");
  const int64_t inside =
      (by_rows ? rows - 1 : columns - 1) * matrix.lead() + (by_rows ? columns : rows);
  if (written && product.batch > 1 && matrix.batch < inside) return Bad("outputs overlap");
  const int64_t elements = (product.batch - 1) * matrix.batch + inside;
  if (elements > buffer.StorageBytes() / DTypeSize(buffer.dtype)) {
    return Bad("a matrix that is not inside of its buffer");
  }
  return Status::Ok();
}

}  // namespace

Json LibraryProduct::ToJson() const {
  Json json = {{"dtype", DTypeName(dtype)},
               {"tf32", tf32},
               {"batch", batch},
               {"m", m},
               {"n", n},
               {"k", k},
               {"alpha", alpha},
               {"beta", beta},
               {"a", MatrixToJson(a, "in")},
               {"b", MatrixToJson(b, "in")},
               {"d", MatrixToJson(d, "out")},
               {"workspace_bytes", workspace_bytes},
               {"place", place}};
  if (c.has_value()) json["c"] = MatrixToJson(*c, "in");
  if (bias.has_value()) json["bias"] = {{"in", *bias}};
  return json;
}

Result<LibraryProduct> LibraryProduct::Parse(std::string_view code) {
  CF_ASSIGN_OR_RETURN(const Json json,
                      ParseJson(code, {.max_bytes = kMaxProductBytes, .max_depth = 4}));
  LibraryProduct product;
  CF_ASSIGN_OR_RETURN(const std::string dtype, JsonString(json, "dtype"));
  CF_ASSIGN_OR_RETURN(product.dtype, ParseDType(dtype));
  const bool half = product.dtype == DType::kFloat16 || product.dtype == DType::kBFloat16;
  if (!half && product.dtype != DType::kFloat32) return Bad("dtype: a float of 16 or 32 bits");
  CF_ASSIGN_OR_RETURN(product.tf32, JsonBool(json, "tf32"));
  if (half && product.tf32) return Bad("tf32: only of float32");
  constexpr int64_t kMaxSide = (int64_t{1} << 31) - 1;
  CF_ASSIGN_OR_RETURN(product.batch, IntIn(json, "batch", 1, kMaxProductBatch));
  CF_ASSIGN_OR_RETURN(product.m, IntIn(json, "m", 1, kMaxSide));
  CF_ASSIGN_OR_RETURN(product.n, IntIn(json, "n", 1, kMaxSide));
  CF_ASSIGN_OR_RETURN(product.k, IntIn(json, "k", 1, kMaxSide));
  CF_ASSIGN_OR_RETURN(product.alpha, JsonDouble(json, "alpha"));
  CF_ASSIGN_OR_RETURN(product.beta, JsonDouble(json, "beta"));
  if (!std::isfinite(product.alpha) || !std::isfinite(product.beta)) return Bad("alpha or beta");
  CF_ASSIGN_OR_RETURN(product.a, MatrixFromJson(json, "a", "in"));
  CF_ASSIGN_OR_RETURN(product.b, MatrixFromJson(json, "b", "in"));
  CF_ASSIGN_OR_RETURN(product.d, MatrixFromJson(json, "d", "out"));
  if (json.contains("c")) {
    CF_ASSIGN_OR_RETURN(product.c, MatrixFromJson(json, "c", "in"));
  }
  if (product.c.has_value() != (product.beta != 0)) return Bad("c: if beta is not 0");
  if (json.contains("bias")) {
    CF_ASSIGN_OR_RETURN(const int64_t index, IntIn(json["bias"], "in", 0, 63));
    product.bias = static_cast<int>(index);
  }
  CF_ASSIGN_OR_RETURN(product.workspace_bytes, IntIn(json, "workspace_bytes", 0, kMaxWorkspace));
  CF_ASSIGN_OR_RETURN(const int64_t place, IntIn(json, "place", 0, kMaxPlace));
  product.place = static_cast<int>(place);
  return product;
}

Status LibraryProduct::Validate(const OpSignature& signature) const {
  if (signature.device != DeviceType::kCuda) return Bad("it runs on CUDA devices");
  if (signature.outputs.size() != 1 || d.index != 0) return Bad("the region has one output");
  const auto input = [&](int index) {
    const bool exists = index >= 0 && index < static_cast<int>(signature.inputs.size());
    return exists ? &signature.inputs[static_cast<size_t>(index)] : nullptr;
  };
  const auto check = [&](const LibraryMatrix& matrix, int64_t rows, int64_t columns) -> Status {
    const TensorSpec* const buffer = input(matrix.index);
    if (buffer == nullptr) return Bad("an input that does not exist");
    if (matrix.alignment > buffer->alignment) return Bad("more alignment than the input's");
    return CheckMatrix(*this, matrix, rows, columns, *buffer, /*written=*/false);
  };
  CF_RETURN_IF_ERROR(check(a, m, k));
  CF_RETURN_IF_ERROR(check(b, k, n));
  if (c.has_value()) CF_RETURN_IF_ERROR(check(*c, m, n));
  CF_RETURN_IF_ERROR(CheckMatrix(*this, d, m, n, signature.output_spec(0), /*written=*/true));
  if (!bias.has_value()) return Status::Ok();
  const TensorSpec* const buffer = input(*bias);
  if (buffer == nullptr || buffer->dtype != dtype || buffer->alignment < kBiasAlignment ||
      buffer->StorageBytes() / DTypeSize(dtype) < n) {
    return Bad("bias: an input of the same type with a number for each column, 16-byte aligned");
  }
  return Status::Ok();
}

}  // namespace cudaforge
