#include "generators/library/product.h"

#include <algorithm>
#include <string>

#include "generators/tiles/contraction.h"

namespace cudaforge::library {
namespace {

constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;  // PyTorch's own on Hopper
constexpr int64_t kAlignment = 16;  // of outputs and vectors; no algorithm needs more

Status Not(const std::string& why) { return Status::Unsupported("no library product: " + why); }

double ScaleOf(const Node& node, const char* name) {
  const Json& value = MemberOrNull(node.kwargs, name);
  return value.is_number() ? value.get<double>() : 1;
}

bool HasOddScale(const Node& node, const char* name) {
  const Json& value = MemberOrNull(node.kwargs, name);
  return !value.is_null() && !value.is_number();
}

// The settings let ATen round float32 operands to TF32.
bool AllowsTf32(const Json& numerics) {
  const Json& precision = MemberOrNull(numerics, "float32_matmul_precision");
  return precision == "high" ||
         (precision == "medium" && MemberOrNull(numerics, "cublas_ieee") != true);
}

class ProductReader {
 public:
  ProductReader(const OpSignature& signature, const tiles::Product& found)
      : signature_(signature), found_(found), sizes_(found.operands) {}

  Result<LibraryProduct> Read() {
    CF_RETURN_IF_ERROR(ReadOperands());
    for (size_t i = found_.node + 1; i < signature_.nodes.size(); ++i) {
      CF_RETURN_IF_ERROR(ReadNext(signature_.nodes[i], static_cast<int>(i) - 1));
    }
    CF_RETURN_IF_ERROR(ReadOutput());
    const Status valid = product_.Validate(signature_);
    if (!valid.ok()) return Not(valid.message());
    return product_;
  }

 private:
  Status ReadOperands() {
    if (found_.node != 0) return Not("an operation before the product");
    product_.batch = sizes_.batch;
    product_.m = sizes_.m, product_.n = sizes_.n, product_.k = sizes_.k;
    product_.dtype = sizes_.a.dtype;
    product_.tf32 = product_.dtype == DType::kFloat32 && AllowsTf32(signature_.numerics);
    product_.workspace_bytes = kWorkspaceBytes;
    product_.a = MatrixOf(sizes_.a, sizes_.a.row, sizes_.a.step);
    product_.b = MatrixOf(sizes_.b, sizes_.b.step, sizes_.b.row);
    const Node& node = signature_.nodes[0];
    if (!found_.adds) return Status::Ok();
    if (HasOddScale(node, "alpha") || HasOddScale(node, "beta")) return Not("an infinite factor");
    product_.alpha = ScaleOf(node, "alpha");
    const double beta = ScaleOf(node, "beta");
    return beta == 0 ? Status::Ok() : ReadAdded(node.args[0], beta);  // ATen ignores it if 0
  }

  static LibraryMatrix MatrixOf(const tiles::Operand& operand, int64_t row, int64_t column) {
    return {.index = operand.input,
            .row = row,
            .column = column,
            .batch = operand.batch,
            .alignment = std::min(operand.alignment, kAlignment)};
  }

  // Reads one of the nodes after the product: it computes with the result of node `before`.
  Status ReadNext(const Node& node, int before) {
    const Json result = {{"node", before}, {"out", 0}};
    const auto is_result = [&](size_t at) {
      return node.args.size() > at && node.args[at] == result;
    };
    if (node.outputs.size() != 1 || node.outputs[0].dtype != product_.dtype ||
        node.outputs[0].sizes != signature_.nodes[0].outputs[0].sizes) {
      return Not("a result with a different type or shape");
    }
    if (node.op != "aten::add.Tensor" || node.args.size() != 2 || HasOddScale(node, "alpha"))
      return Not(node.op + " after it");
    if (product_.dtype == DType::kFloat16)
      return Not("a sum after a float16 product, where ATen may overflow");
    const double alpha = ScaleOf(node, "alpha");
    if (is_result(0)) return alpha == 0 ? Not("a factor of 0") : ReadAdded(node.args[1], alpha);
    return is_result(1) && alpha == 1 ? ReadAdded(node.args[0], 1) : Not("a sum of other values");
  }

  // Reads what is added to the product: a bias, or a matrix.
  Status ReadAdded(const Json& argument, double scale) {
    const Json& index = MemberOrNull(argument, "in");
    if (!index.is_number_integer()) return Not("it adds what is no input");
    const TensorSpec& spec = signature_.inputs[index.get<size_t>()];
    if (spec.dtype != product_.dtype) return Not("it adds another type");
    if (scale == 1 && !product_.bias.has_value() && IsRow(spec)) {
      product_.bias = index.get<int>();
      return Status::Ok();
    }
    if (product_.c.has_value()) return Not("it adds two matrices");
    LibraryMatrix matrix{.index = index.get<int>()};
    const size_t rank = spec.sizes.size();
    if (rank < 2 || spec.sizes[rank - 2] != product_.m || spec.sizes[rank - 1] != product_.n)
      return Not("it adds neither a row nor a matrix");
    matrix.row = spec.strides[rank - 2];
    matrix.column = spec.strides[rank - 1];
    if (rank == 3 && spec.sizes[0] != 1) matrix.batch = spec.strides[0];
    matrix.alignment = std::min(spec.alignment, kAlignment);
    if (matrix.column != 1) return Not("it adds a matrix with gaps between its columns");
    product_.c = matrix;
    product_.beta = scale;
    return Status::Ok();
  }

  // True if all rows of the result get the same numbers, which are neighbours.
  bool IsRow(const TensorSpec& spec) const {
    const size_t rank = spec.sizes.size();
    if (rank == 0 || spec.sizes[rank - 1] != product_.n || spec.alignment < kAlignment)
      return false;
    if (spec.strides[rank - 1] != 1 && product_.n != 1) return false;
    for (size_t d = 0; d + 1 < rank; ++d) {
      if (spec.sizes[d] != 1 && spec.strides[d] != 0) return false;
    }
    return true;
  }

  Status ReadOutput() {
    const int last = static_cast<int>(signature_.nodes.size()) - 1;
    if (signature_.outputs.size() != 1 || !(signature_.outputs[0] == OutputRef{last, 0}))
      return Not("more results than the last");
    const TensorSpec& spec = signature_.output_spec(0);
    const size_t rank = spec.sizes.size();
    product_.d = {.index = 0,
                  .row = spec.strides[rank - 2],
                  .column = spec.strides[rank - 1],
                  .batch = product_.batch > 1 ? spec.strides[0] : 0,
                  .alignment = kAlignment};
    return Status::Ok();
  }

  const OpSignature& signature_;
  const tiles::Product& found_;
  const tiles::Contraction& sizes_;
  LibraryProduct product_;
};

}  // namespace

Result<LibraryProduct> ReadLibraryProduct(const OpSignature& signature) {
  CF_ASSIGN_OR_RETURN(const tiles::Product found, tiles::ReadProduct(signature));
  return ProductReader(signature, found).Read();
}

}  // namespace cudaforge::library
