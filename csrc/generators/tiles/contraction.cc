#include "generators/tiles/contraction.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "generators/rows/lower/emitter.h"
#include "generators/rows/lower/node.h"

namespace cudaforge::tiles {
namespace {

Status No(const std::string& why) { return Status::Unsupported("no product kernel: " + why); }

// The products, and where their operands are: A at argument `left`, then B. Before it what is
// added.
struct ProductOp {
  const char* name;
  size_t left;
};
constexpr ProductOp kProductOps[] = {
    {"aten::mm", 0}, {"aten::bmm", 0}, {"aten::addmm", 1}, {"aten::baddbmm", 1}};

const ProductOp* ProductOf(const std::string& op) {
  const auto* found =
      std::ranges::find_if(kProductOps, [&](const ProductOp& known) { return op == known.name; });
  return found == std::end(kProductOps) ? nullptr : found;
}

// Reads the matrices at `argument`. rows_first: their rows (of A) are the last dimension but one,
// else the last (columns of B).
Result<Operand> ReadOperand(const Json& argument, const OpSignature& signature, bool rows_first) {
  const Json& index = MemberOrNull(argument, "in");
  if (!index.is_number_integer()) return No("an operand is no input of the region");
  Operand operand;
  operand.input = index.get<int>();
  const TensorSpec& spec = signature.inputs[static_cast<size_t>(operand.input)];
  const size_t rank = spec.sizes.size();
  if (rank != 2 && rank != 3) return No("an operand is no matrix");
  operand.dtype = spec.dtype;
  operand.alignment = spec.alignment;
  operand.frozen = spec.frozen;
  operand.row = spec.strides[rows_first ? rank - 2 : rank - 1];
  operand.step = spec.strides[rows_first ? rank - 1 : rank - 2];
  if (rank == 3 && spec.sizes[0] != 1) operand.batch = spec.strides[0];
  if (operand.row != 1 && operand.step != 1) return No("an operand has gaps between its elements");
  if (operand.row == 0 || operand.step == 0) return No("an operand is expanded");
  if (std::max(operand.row, operand.step) > std::numeric_limits<int32_t>::max()) {
    return No("an operand's rows are too far apart");
  }
  return operand;
}

// Reads the sizes and the operands of a product.
Status ReadSizes(const ProductOp& op, const Node& node, const OpSignature& signature,
                 Contraction& c) {
  if (node.args.size() != op.left + 2 || node.outputs.size() != 1) return No("unknown arguments");
  CF_ASSIGN_OR_RETURN(c.a, ReadOperand(node.args[op.left], signature, true));
  CF_ASSIGN_OR_RETURN(c.b, ReadOperand(node.args[op.left + 1], signature, false));
  const std::vector<int64_t>& a = signature.inputs[static_cast<size_t>(c.a.input)].sizes;
  const std::vector<int64_t>& b = signature.inputs[static_cast<size_t>(c.b.input)].sizes;
  const std::vector<int64_t>& out = node.outputs[0].sizes;
  if (a.size() != b.size() || out.size() != a.size()) return No("operands of different ranks");
  c.has_batch = a.size() == 3;
  c.batch = c.has_batch ? a[0] : 1;
  c.m = a[a.size() - 2], c.k = a[a.size() - 1], c.n = b[b.size() - 1];
  std::vector<int64_t> sizes = {c.m, c.n};
  if (c.has_batch) sizes.insert(sizes.begin(), c.batch);
  if (b[b.size() - 2] != c.k || (c.has_batch && b[0] != c.batch) || out != sizes)
    return No("an unexpected result");
  const DType dtype = c.a.dtype;
  const bool known =
      dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  if (!known || c.b.dtype != dtype || node.outputs[0].dtype != dtype)
    return No("operands of different types, or not float32, float16 or bfloat16");
  return Status::Ok();
}

// alpha * product + beta * what is added, as a value of the graph.
void LowerProduct(const ProductOp& op, rows::NodeReader& reader) {
  rows::Graph& graph = reader.g();
  int sum = graph.Product(reader.spec().sizes);
  if (op.left == 1) {
    const double alpha = reader.Number(op.left + 2, "alpha", 1);
    const double beta = reader.Number(op.left + 2, "beta", 1);
    if (alpha != 1) sum = graph.Mul(sum, graph.Like(sum, alpha));
    if (beta != 0) {  // else ATen ignores it
      int added = reader.As(reader.TensorArg(0, "self"), rows::Type::kF32);
      if (beta != 1) added = graph.Mul(added, graph.Like(added, beta));
      sum = graph.Add(sum, added);
    }
  }
  // In a half type what follows sees the rounded sum, as in ATen: where the next operation
  // overflows depends on it.
  reader.Result(0, reader.Rounded(sum, reader.spec().dtype), /*exact=*/true);
}

Result<rows::Stage> WriteEpilogue(const rows::RegionGraph& region, const OpSignature& signature,
                                  const std::vector<int64_t>& sizes) {
  const rows::Graph& graph = region.graph;
  rows::Loops loops;
  loops.outer.assign(sizes.begin(), sizes.end() - 1);
  loops.inner = {sizes.back()};
  const rows::Index index = rows::OwnIndex(sizes, loops);
  const std::vector<int> scratch(graph.nodes().size(), -1);
  const std::map<int, rows::Index> none;
  rows::StageEmitter emitter(graph, signature.inputs, loops, scratch, none, none);
  for (size_t o = 0; o < region.outputs.size(); ++o) {
    const rows::GraphOutput& output = region.outputs[o];
    if (graph.sizes(output.node) != sizes)
      return No("an output that has not the shape of the product");
    CF_RETURN_IF_ERROR(emitter.Store(output.node, index,
                                     {rows::BufferKind::kOutput, static_cast<int>(o)},
                                     output.spec.dtype, output.spec.strides));
  }
  rows::Stage stage = emitter.Take();
  rows::AssignSpaces(stage);
  rows::SetAlignments({&stage, 1}, signature);
  return stage;
}

}  // namespace

Result<Contraction> ReadContraction(const OpSignature& signature) {
  const Node* product = nullptr;
  for (const Node& node : signature.nodes) {
    if (ProductOf(node.op) == nullptr) continue;
    if (product != nullptr) return Status::NotFound("no product kernel: several products");
    product = &node;
  }
  if (product == nullptr) return Status::NotFound("no product kernel: no matrix product");
  Contraction contraction;
  CF_RETURN_IF_ERROR(ReadSizes(*ProductOf(product->op), *product, signature, contraction));
  CF_ASSIGN_OR_RETURN(const rows::RegionGraph region,
                      rows::ReadRegion(signature, [&](rows::NodeReader& reader) {
                        const ProductOp* op = ProductOf(reader.node().op);
                        if (op != nullptr) LowerProduct(*op, reader);
                        return op != nullptr;
                      }));
  if (region.has_anchor) return No("the region reduces more than the product's sums");
  CF_ASSIGN_OR_RETURN(contraction.epilogue,
                      WriteEpilogue(region, signature, product->outputs[0].sizes));
  if (!contraction.epilogue.Has(rows::Value::Kind::kProduct))
    return No("no output depends on the product");
  return contraction;
}

}  // namespace cudaforge::tiles
