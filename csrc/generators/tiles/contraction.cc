#include "generators/tiles/contraction.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <numeric>
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
void LowerProduct(const ProductOp& op, int number, rows::NodeReader& reader) {
  rows::Graph& graph = reader.g();
  int sum = graph.Product(reader.spec().sizes, number);
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

// Reads a node that computes sums of an operand of the one product: of A's rows or B's columns.
// false: it is another one.
bool ReadOperandSums(rows::NodeReader& reader, Contraction& c) {
  if (reader.node().op != "aten::sum.dim_IntList" || c.operand_sums.has_value()) return false;
  if (c.has_batch || !c.siblings.empty() || c.a.dtype != DType::kFloat32) return false;
  if (c.a.frozen || c.b.frozen) return false;
  const Json& input = MemberOrNull(reader.Arg(0, "self"), "in");
  const std::vector<int> dims = reader.Dims(1, "dim", 2);
  if (!reader.ok() || !input.is_number_integer() || dims.size() != 1) return false;
  const bool of_b = dims[0] == 0;
  const Operand& operand = of_b ? c.b : c.a;
  const int64_t sums = of_b ? c.n : c.m;
  if (input.get<int>() != operand.input) return false;
  if (reader.spec().dtype != DType::kFloat32 || reader.spec().numel() != sums) return false;
  c.operand_sums = OperandSums{.of_b = of_b};
  return true;
}

// Of these of the region's outputs.
Result<rows::Stage> WriteEpilogue(const rows::RegionGraph& region, const OpSignature& signature,
                                  const std::vector<int64_t>& sizes,
                                  const std::vector<size_t>& outputs) {
  const rows::Graph& graph = region.graph;
  rows::Loops loops;
  loops.outer.assign(sizes.begin(), sizes.end() - 1);
  loops.inner = {sizes.back()};
  const rows::Index index = rows::OwnIndex(sizes, loops);
  const std::vector<int> scratch(graph.nodes().size(), -1);
  const std::map<int, rows::Index> none;
  rows::StageEmitter emitter(graph, signature.inputs, loops, scratch, none, none);
  for (size_t o : outputs) {
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

// The products that a node of the graph depends on, a bit for each.
uint64_t ProductsOf(const rows::Graph& graph, int node) {
  std::vector<bool> seen(graph.nodes().size());
  std::vector<int> waiting = {node};
  uint64_t products = 0;
  while (!waiting.empty()) {
    const int next = waiting.back();
    waiting.pop_back();
    if (seen[static_cast<size_t>(next)]) continue;
    seen[static_cast<size_t>(next)] = true;
    const rows::GraphNode& of = graph.node(next);
    if (of.kind == rows::GraphNode::Kind::kProduct) products |= uint64_t{1} << of.integer;
    waiting.insert(waiting.end(), of.operands.begin(), of.operands.end());
  }
  return products;
}

// The same with buffers numbered in the order of their use, and without which product it is.
rows::Stage Renumbered(rows::Stage stage) {
  std::vector<rows::BufferRef> seen;
  const auto number = [&](rows::BufferRef& buffer) {
    const auto found = std::ranges::find(seen, buffer);
    const auto index = static_cast<int>(found - seen.begin());
    if (found == seen.end()) seen.push_back(buffer);
    buffer.index = index;
  };
  for (rows::Value& value : stage.values) {
    if (value.kind == rows::Value::Kind::kLoad) number(value.buffer);
    value.alignment = 0;
    if (value.kind == rows::Value::Kind::kProduct) value.integer = 0;
  }
  for (rows::Store& store : stage.stores) number(store.buffer);
  return stage;
}

bool AreAlike(const rows::Stage& a, const rows::Stage& b) {
  const rows::Stage x = Renumbered(a), y = Renumbered(b);
  const auto same = [](const rows::Store& s, const rows::Store& t) {
    return s.buffer == t.buffer && s.storage == t.storage && s.access == t.access &&
           s.value == t.value;
  };
  return x.values == y.values && std::ranges::equal(x.stores, y.stores, same);
}

// Sets the epilogues of several products.
Status WriteEpilogues(const rows::RegionGraph& region, const OpSignature& signature,
                      const std::vector<int64_t>& sizes, Contraction& c) {
  std::vector<std::vector<size_t>> outputs(static_cast<size_t>(c.products()));
  bool apart = true;
  for (size_t o = 0; o < region.outputs.size(); ++o) {
    const uint64_t products = ProductsOf(region.graph, region.outputs[o].node);
    if (products == 0) return No("an output does not depend on a product");
    apart = apart && std::has_single_bit(products);
    outputs[static_cast<size_t>(std::countr_zero(products))].push_back(o);
  }
  if (!apart) {
    if (c.products() != 2) return No("results of more than two products");
    std::vector<size_t> all(region.outputs.size());
    std::iota(all.begin(), all.end(), size_t{0});
    CF_ASSIGN_OR_RETURN(c.epilogue, WriteEpilogue(region, signature, sizes, all));
    return Status::Ok();
  }
  for (const std::vector<size_t>& of_product : outputs) {
    CF_ASSIGN_OR_RETURN(rows::Stage stage, WriteEpilogue(region, signature, sizes, of_product));
    if (!stage.Has(rows::Value::Kind::kProduct)) return No("no output depends on a product");
    c.further_epilogues.push_back(std::move(stage));
  }
  c.epilogue = std::move(c.further_epilogues.front());
  c.further_epilogues.erase(c.further_epilogues.begin());
  for (const rows::Stage& further : c.further_epilogues) {
    if (!AreAlike(c.epilogue, further))
      return No("several products whose results are not computed alike");
    for (size_t v = 0; v < further.values.size(); ++v) {
      int64_t& alignment = c.epilogue.values[v].alignment;
      alignment = std::min(alignment, further.values[v].alignment);
    }
  }
  return Status::Ok();
}

// The products of the region, and which are siblings of the first.
Result<std::vector<const Node*>> ReadProducts(const OpSignature& signature, Contraction& c) {
  constexpr size_t kMostProducts = 4;
  std::vector<const Node*> products;
  for (const Node& node : signature.nodes) {
    if (ProductOf(node.op) != nullptr) products.push_back(&node);
  }
  if (products.empty()) return Status::NotFound("no product kernel: no matrix product");
  if (products.size() > kMostProducts)
    return Status::NotFound("no product kernel: several products");
  CF_RETURN_IF_ERROR(ReadSizes(*ProductOf(products[0]->op), *products[0], signature, c));
  for (size_t i = 1; i < products.size(); ++i) {
    const Status several = Status::NotFound("no product kernel: several products");
    if (products[i]->op != products[0]->op || c.has_batch) return several;
    Contraction other;
    if (!ReadSizes(*ProductOf(products[i]->op), *products[i], signature, other).ok())
      return several;
    if (other.a.input != c.a.input || other.a.row != c.a.row || other.a.step != c.a.step ||
        other.m != c.m || other.n != c.n || other.k != c.k || other.b.row != c.b.row ||
        other.b.step != c.b.step || other.b.dtype != c.b.dtype)
      return several;
    c.b.alignment = std::min(c.b.alignment, other.b.alignment);
    c.b.frozen = c.b.frozen && other.b.frozen;
    c.siblings.push_back(other.b.input);
  }
  return products;
}

}  // namespace

Result<Product> ReadProduct(const OpSignature& signature) {
  Product found;
  CF_ASSIGN_OR_RETURN(const std::vector<const Node*> products,
                      ReadProducts(signature, found.operands));
  if (products.size() > 1) return Status::NotFound("no product kernel: several products");
  found.node = static_cast<size_t>(products[0] - signature.nodes.data());
  found.adds = ProductOf(products[0]->op)->left == 1;
  return found;
}

Result<Contraction> ReadContraction(const OpSignature& signature) {
  Contraction contraction;
  CF_ASSIGN_OR_RETURN(const std::vector<const Node*> products,
                      ReadProducts(signature, contraction));
  int operand_sums = -1;  // their node of the graph, like another product's sums
  const auto reads = [&](rows::NodeReader& reader) {
    const auto found = std::ranges::find(products, &reader.node());
    const auto number = static_cast<int>(found - products.begin());
    if (found != products.end()) {
      LowerProduct(*ProductOf(reader.node().op), number, reader);
      return true;
    }
    if (!ReadOperandSums(reader, contraction)) return false;
    operand_sums = reader.g().Product(reader.spec().sizes, number);
    reader.Result(0, operand_sums);
    return true;
  };
  CF_ASSIGN_OR_RETURN(const rows::RegionGraph region, rows::ReadRegion(signature, reads));
  if (region.has_anchor) return No("the region reduces more than the product's sums");
  const std::vector<int64_t>& sizes = products[0]->outputs[0].sizes;
  if (products.size() > 1) {
    CF_RETURN_IF_ERROR(WriteEpilogues(region, signature, sizes, contraction));
    return contraction;
  }
  std::vector<size_t> of_product;
  for (size_t o = 0; o < region.outputs.size(); ++o) {
    const auto& [node, spec] = region.outputs[o];
    if (contraction.operand_sums.has_value() && node == operand_sums) {
      if (spec.dtype != DType::kFloat32 || spec.strides != ContiguousStrides(spec.sizes))
        return No("the sums of an operand are stored in another form");
      contraction.operand_sums->output = static_cast<int>(o);
    } else if (ProductsOf(region.graph, node) > 1) {
      return No("it computes with the sums of an operand");
    } else {
      of_product.push_back(o);
    }
  }
  if (contraction.operand_sums.has_value() && of_product.size() + 1 != region.outputs.size())
    return No("the sums of an operand are not one output of the region");
  CF_ASSIGN_OR_RETURN(contraction.epilogue, WriteEpilogue(region, signature, sizes, of_product));
  if (!contraction.epilogue.Has(rows::Value::Kind::kProduct))
    return No("no output depends on the product");
  return contraction;
}

}  // namespace cudaforge::tiles
