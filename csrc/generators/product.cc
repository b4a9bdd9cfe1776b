#include "generators/product.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "generators/emit_text.h"

namespace cudaforge {
namespace {

constexpr int64_t kTile = 128;      // as in product_split_sm90.cu
constexpr int64_t kBlockK = 64;     // as in product_split_sm90.cu
constexpr int64_t kStages = 3;      // as many as fit into a multiprocessor's shared memory
constexpr int64_t kSplitRows = 32;  // of a block of `split`
constexpr int64_t kStageBytes = 4 * kTile * kBlockK * 2;
// Below this, the whole product takes as long as three launches: microseconds.
constexpr int64_t kLeastWork = int64_t{1} << 24;  // M * N * K
constexpr int64_t kLeastSide = 64;
// Rows with fewer than 64 nonzero elements are computed slowly. Shorter rows after a ReLU may have
// that few.
constexpr int64_t kLeastK = 256;
constexpr int64_t kMostSide = int64_t{1} << 24;  // indices in a tile are 32-bit integers
constexpr int64_t kLeastStepsOfPart = 4;
constexpr int64_t kStepsOfCombining = 3;  // writing and reading a part, in steps of kBlockK

// An operand: the strides of rows (of A; columns of B) and of k. One of them is 1.
struct Operand {
  int input = 0;
  int64_t row = 0;
  int64_t step = 0;
  bool vector = false;  // 16-byte vectors along k
};

struct Product {
  int64_t m = 0, n = 0, k = 0;
  Operand a, b;
  int self = -1;  // the input that is added, or -1
  int64_t self_row = 0, self_column = 0;
  double alpha = 1, beta = 0;

  int64_t tiles() const { return TilesOf(m) * TilesOf(n); }
  int64_t steps() const { return (k + kBlockK - 1) / kBlockK; }
  static int64_t TilesOf(int64_t side) { return (side + kTile - 1) / kTile; }
};

Status No(const std::string& why) { return Status::Unsupported("no product kernel: " + why); }

// The input that `argument` refers to.
Result<int> InputOf(const Json& argument, const OpSignature& signature) {
  const Json& index = MemberOrNull(argument, "in");
  if (!index.is_number_integer()) return No("an operand is no input of the region");
  const int input = index.get<int>();
  if (signature.inputs[static_cast<size_t>(input)].dtype != DType::kFloat32) {
    return No("an operand is not float32");
  }
  return input;
}

// Reads a matrix with rows along dimension `row` and k along the other one.
Result<Operand> ReadOperand(const Json& argument, const OpSignature& signature, size_t row) {
  Operand operand;
  CF_ASSIGN_OR_RETURN(operand.input, InputOf(argument, signature));
  const TensorSpec& spec = signature.inputs[static_cast<size_t>(operand.input)];
  if (spec.sizes.size() != 2) return No("an operand is no matrix");
  operand.row = spec.strides[row];
  operand.step = spec.strides[1 - row];
  if (operand.row != 1 && operand.step != 1) return No("an operand has gaps between its elements");
  if (operand.row == 0 || operand.step == 0) return No("an operand is expanded");
  if (std::max(operand.row, operand.step) > std::numeric_limits<int32_t>::max()) {
    return No("an operand's rows are too far apart");
  }
  operand.vector = operand.step == 1 && spec.sizes[1 - row] % 8 == 0 && operand.row % 4 == 0 &&
                   spec.alignment % 16 == 0;
  return operand;
}

Result<double> ReadScalar(const Node& node, const char* name) {
  const Json& value = MemberOrNull(node.kwargs, name);
  if (!value.is_number()) return No(std::string(name) + " is no finite number");
  return value.get<double>();
}

// Returns true for a single mm or addmm.
bool IsProduct(const OpSignature& signature) {
  if (signature.nodes.size() != 1) return false;
  const std::string& op = signature.nodes[0].op;
  return op == "aten::mm" || op == "aten::addmm";
}

Result<Product> ReadProduct(const OpSignature& signature) {
  if (signature.device != DeviceType::kCuda) return No("not on a GPU");
  if (!IsProduct(signature) || signature.outputs.size() != 1) return No("not one mm or addmm");
  const Node& node = signature.nodes[0];
  const bool added = node.op == "aten::addmm";
  const size_t first = added ? 1 : 0;
  if (node.args.size() != first + 2) return No("unknown arguments");
  Product product;
  CF_ASSIGN_OR_RETURN(product.a, ReadOperand(node.args[first], signature, 0));
  CF_ASSIGN_OR_RETURN(product.b, ReadOperand(node.args[first + 1], signature, 1));
  const std::vector<int64_t>& a = signature.inputs[static_cast<size_t>(product.a.input)].sizes;
  const std::vector<int64_t>& b = signature.inputs[static_cast<size_t>(product.b.input)].sizes;
  product.m = a[0], product.k = a[1], product.n = b[1];
  const TensorSpec& out = signature.output_spec(0);
  if (b[0] != product.k || out.sizes != std::vector<int64_t>{product.m, product.n} ||
      out.strides != ContiguousStrides(out.sizes) || out.dtype != DType::kFloat32) {
    return No("an unexpected result");
  }
  const int64_t most = std::max({product.m, product.n, product.k});
  if (std::min(product.m, product.n) < kLeastSide || product.k < kLeastK || most > kMostSide ||
      product.m * product.n < kLeastWork / product.k) {
    return No("sides of 64 to 2^24, rows of 256 and more, and 2^24 products at least are made");
  }
  if (!added) return product;
  CF_ASSIGN_OR_RETURN(product.alpha, ReadScalar(node, "alpha"));
  CF_ASSIGN_OR_RETURN(product.beta, ReadScalar(node, "beta"));
  if (product.beta == 0) return product;  // ATen ignores it then
  CF_ASSIGN_OR_RETURN(product.self, InputOf(node.args[0], signature));
  const TensorSpec& self = signature.inputs[static_cast<size_t>(product.self)];
  const size_t rank = self.sizes.size();
  if (rank > 2) return No("what is added has more than two dimensions");
  if (rank >= 1 && self.sizes[rank - 1] != 1) product.self_column = self.strides[rank - 1];
  if (rank == 2 && self.sizes[0] != 1) product.self_row = self.strides[0];
  return product;
}

LaunchArg Arg(LaunchArg::Kind kind, int index) {
  LaunchArg arg;
  arg.kind = kind;
  arg.index = index;
  return arg;
}

LaunchArg Number(double value) {
  LaunchArg arg;
  arg.kind = LaunchArg::Kind::kFloat;
  arg.number = value;
  return arg;
}

Candidate Write(const Product& p, int64_t parts) {
  // No variables, because NVRTC puts zero-valued constexpr ones into memory, which kernels may not
  // have.
  rows::Lines lines;
  lines.Add("#include <cuda_fp16.h>");
  lines.Add("enum : long long { kSelfRow = ", p.self_row, ", kSelfColumn = ", p.self_column, " };");
  auto integer = [&](const char* name, int64_t value) {
    lines.Add("enum : int { ", name, " = ", value, " };");
  };
  integer("kM", p.m), integer("kN", p.n), integer("kK", p.k);
  integer("kARow", p.a.row), integer("kAStep", p.a.step);
  integer("kBRow", p.b.row), integer("kBStep", p.b.step);
  integer("kAVector", p.a.vector ? 1 : 0), integer("kBVector", p.b.vector ? 1 : 0);
  integer("kAdds", p.self >= 0 ? 1 : 0);
  integer("kParts", parts), integer("kStages", kStages);

  Candidate candidate;
  candidate.author = "generator:product";
  candidate.params = {{"parts", parts}};
  candidate.source.language = Language::kCuda;
  candidate.source.code = lines.Text() + kProductSplitSource + kProductSource;
  const int64_t rows_a = Product::TilesOf(p.m) * kTile, rows_b = Product::TilesOf(p.n) * kTile;
  const int64_t element_bytes = 4;  // two halves
  const int64_t k = p.steps() * kBlockK;
  candidate.plan.scratch_bytes = {rows_a * k * element_bytes, rows_b * k * element_bytes,
                                  (rows_a + rows_b) * int64_t{sizeof(float)},
                                  parts > 1 ? parts * rows_a * rows_b * int64_t{sizeof(float)} : 4};
  using Kind = LaunchArg::Kind;
  const LaunchArg a = Arg(Kind::kInput, p.a.input), b = Arg(Kind::kInput, p.b.input);
  const LaunchArg self = p.self >= 0 ? Arg(Kind::kInput, p.self) : a;  // unused if there is none
  const LaunchArg a_tiles = Arg(Kind::kScratch, 0), b_tiles = Arg(Kind::kScratch, 1);
  const LaunchArg scales = Arg(Kind::kScratch, 2), partial = Arg(Kind::kScratch, 3);
  const LaunchArg out = Arg(Kind::kOutput, 0);
  const LaunchArg alpha = Number(p.alpha), beta = Number(p.beta);
  Launch split;
  split.kernel = "split";
  split.args = {a, b, a_tiles, b_tiles, scales};
  split.grid[0] = (rows_a + rows_b) / kSplitRows;
  split.block[0] = 1024;
  Launch product;
  product.kernel = "product";
  product.args = {self, a, b, a_tiles, b_tiles, scales, partial, out, alpha, beta};
  product.grid[0] = p.tiles();
  product.grid[1] = parts;
  product.block[0] = 256;
  product.dynamic_shared_bytes = kStages * kStageBytes + 1024;  // aligned to 1024
  candidate.plan.launches = {split, product};
  if (parts > 1) {
    Launch combine;
    combine.kernel = "combine";
    combine.args = {self, a, b, scales, partial, out, alpha, beta};
    combine.grid[0] = rows_a * rows_b / 512;
    combine.block[0] = 256;
    candidate.plan.launches.push_back(std::move(combine));
  }
  return candidate;
}

// Numbers of parts to split the sums into, best guess first. Splits if the tiles fill no wave of
// blocks (one a multiprocessor), or little of the last one.
std::vector<int64_t> PartCounts(const Product& product, int64_t multiprocessors) {
  const int64_t most =
      std::max<int64_t>(1, std::min<int64_t>(8, product.steps() / kLeastStepsOfPart));
  auto time = [&](int64_t parts) {  // in sequential steps of blocks
    const int64_t waves = (product.tiles() * parts + multiprocessors - 1) / multiprocessors;
    return waves * ((product.steps() + parts - 1) / parts + (parts > 1 ? kStepsOfCombining : 0));
  };
  std::vector<int64_t> counts;
  for (int64_t parts = 1; parts <= most; ++parts) counts.push_back(parts);
  std::stable_sort(counts.begin(), counts.end(),
                   [&](int64_t x, int64_t y) { return time(x) < time(y); });
  counts.resize(std::min<size_t>(counts.size(), 3));
  if (std::count(counts.begin(), counts.end(), 1) == 0) counts.push_back(1);
  return counts;
}

class ProductSearch : public CandidateSearch {
 public:
  ProductSearch(const Product& product, int64_t multiprocessors)
      : product_(product), counts_(PartCounts(product, multiprocessors)) {}

  std::optional<Candidate> Next() override {
    if (next_ == counts_.size()) return std::nullopt;
    return Write(product_, counts_[next_++]);
  }
  void Tell(size_t, const SearchFeedback&) override {}  // all of the few candidates are tried

 private:
  const Product product_;
  const std::vector<int64_t> counts_;
  size_t next_ = 0;
};

}  // namespace

Status CanGenerateProduct(const OpSignature& signature, std::string_view target) {
  if (!IsProduct(signature)) return Status::NotFound("no product kernel: not one mm or addmm");
  if (target != kProductTarget) return No("made for " + std::string(kProductTarget) + " alone");
  return ReadProduct(signature).status();
}

Result<std::unique_ptr<CandidateSearch>> MakeProductSearch(const OpSignature& signature,
                                                           const DeviceArch& arch) {
  CF_RETURN_IF_ERROR(CanGenerateProduct(signature, arch.target));
  CF_ASSIGN_OR_RETURN(const Product product, ReadProduct(signature));
  CF_RETURN_IF_ERROR(KnowsMultiprocessors(arch));
  return std::unique_ptr<CandidateSearch>(
      std::make_unique<ProductSearch>(product, *arch.multiprocessors));
}

}  // namespace cudaforge
