#include "generators/rows/lower/graph.h"

#include <algorithm>
#include <cstring>

namespace cudaforge::rows {
namespace {

template <typename T>
void PutNumber(std::string& key, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  key.append(bytes, sizeof(T));
}

template <typename T>
void PutList(std::string& key, const std::vector<T>& values) {
  PutNumber(key, values.size());
  for (T value : values) PutNumber(key, value);
}

// A byte string that identifies a node.
std::string NodeKey(const GraphNode& node) {
  std::string key;
  for (int field : {static_cast<int>(node.kind), static_cast<int>(node.type), node.dim,
                    static_cast<int>(node.storage), static_cast<int>(node.op),
                    static_cast<int>(node.reduce), static_cast<int>(node.scan)}) {
    PutNumber(key, field);
  }
  PutNumber(key, node.number);
  PutNumber(key, node.integer);
  PutList(key, node.sizes);
  PutList(key, node.operands);
  PutList(key, node.dims);
  for (const ViewDim& dim : node.view) {
    PutNumber(key, dim.offset);
    PutNumber(key, dim.div);
    PutNumber(key, dim.bound);
    PutList(key, dim.coef);
  }
  return key;
}

constexpr size_t kMaxNodes = 4096;

}  // namespace

int Graph::Fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
  return 0;
}

int Graph::Append(GraphNode node) {
  if (!status_.ok()) return 0;
  if (nodes_.size() >= kMaxNodes) return Fail(Status::Unsupported("the region is too large"));
  const auto [entry, fresh] = ids_.emplace(NodeKey(node), static_cast<int>(nodes_.size()));
  if (fresh) nodes_.push_back(std::move(node));
  return entry->second;
}

int Graph::Input(int index, const TensorSpec& spec) {
  GraphNode node;
  node.kind = GraphNode::Kind::kInput;
  node.type = ComputeType(spec.dtype);
  node.storage = spec.dtype;
  node.sizes = spec.sizes;
  node.integer = index;
  return Append(std::move(node));
}

int Graph::Number(Type type, double value) {
  GraphNode node;
  node.type = type;
  if (type == Type::kF32) {
    node.number = static_cast<double>(static_cast<float>(value));
  } else if (type == Type::kF64) {
    node.number = value;
  } else if (type == Type::kBool) {
    node.integer = value != 0;
  } else {
    if (!(value >= -9.2e18 && value <= 9.2e18)) {
      return Fail(Status::Unsupported("an integer constant is out of range"));
    }
    node.integer = static_cast<int64_t>(value);
  }
  return Append(std::move(node));
}

int Graph::Integer(int64_t value) {
  GraphNode node;
  node.type = Type::kI64;
  node.integer = value;
  return Append(std::move(node));
}

int Graph::Iota(int rank, int dim, int64_t size) {
  GraphNode node;
  node.kind = GraphNode::Kind::kIota;
  node.type = Type::kI64;
  node.sizes.assign(static_cast<size_t>(rank), 1);
  node.sizes[static_cast<size_t>(dim)] = size;
  node.dim = dim;
  return Append(std::move(node));
}

int Graph::Product(std::vector<int64_t> sizes, int number) {
  GraphNode node;
  node.kind = GraphNode::Kind::kProduct;
  node.sizes = std::move(sizes);
  node.integer = number;
  return Append(std::move(node));
}

int Graph::Pointwise(ScalarOp op, const std::vector<int>& operands) {
  GraphNode node;
  node.kind = GraphNode::Kind::kPointwise;
  node.op = op;
  node.operands = operands;
  const Type last = this->node(operands.back()).type;
  node.type = ScalarFactsOf(op).gives_bool ? Type::kBool : last;
  for (size_t i = op == ScalarOp::kWhere ? 1 : 0; i < operands.size(); ++i) {
    if (status_.ok() && this->node(operands[i]).type != last) {
      return Fail(Status::Unsupported("operands of different types"));
    }
  }
  for (int operand : operands) {
    const std::vector<int64_t>& from = sizes(operand);
    if (from.size() > node.sizes.size()) {
      node.sizes.insert(node.sizes.begin(), from.size() - node.sizes.size(), 1);
    }
    for (size_t d = 0; d < from.size(); ++d) {
      int64_t& size = node.sizes[node.sizes.size() - from.size() + d];
      if (from[d] == 1 || from[d] == size) continue;
      if (size != 1) return Fail(Status::Unsupported("operands that do not broadcast"));
      size = from[d];
    }
  }
  return Append(std::move(node));
}

int Graph::Cast(int a, Type type) {
  if (node(a).type == type) return a;
  GraphNode cast;
  cast.kind = GraphNode::Kind::kPointwise;
  cast.op = ScalarOp::kCast;
  cast.type = type;
  cast.sizes = sizes(a);
  cast.operands = {a};
  return Append(std::move(cast));
}

int Graph::Reduce(ReduceOp op, int a, std::vector<int> dims) {
  GraphNode node;
  node.kind = GraphNode::Kind::kReduce;
  const bool index = op == ReduceOp::kArgMax || op == ReduceOp::kArgMin;
  node.type = index ? Type::kI64 : this->node(a).type;
  node.sizes = sizes(a);
  node.operands = {a};
  node.reduce = op;
  std::sort(dims.begin(), dims.end());
  for (int dim : dims) {
    if (dim < 0 || dim >= static_cast<int>(node.sizes.size())) {
      return Fail(Status::Unsupported("a reduced dimension is out of range"));
    }
    node.sizes[static_cast<size_t>(dim)] = 1;
  }
  node.dims = std::move(dims);
  return Append(std::move(node));
}

int Graph::Scan(ScanOp op, int a, int dim) {
  GraphNode node;
  node.kind = GraphNode::Kind::kScan;
  node.type = this->node(a).type;
  node.sizes = sizes(a);
  node.operands = {a};
  node.scan = op;
  node.dims = {dim};
  return Append(std::move(node));
}

int Graph::View(int a, std::vector<int64_t> sizes, std::vector<ViewDim> dims, int outside) {
  GraphNode node;
  node.kind = GraphNode::Kind::kView;
  node.type = this->node(a).type;
  node.sizes = std::move(sizes);
  node.operands = {a};
  if (outside >= 0) node.operands.push_back(outside);
  node.view = std::move(dims);
  return Append(std::move(node));
}

int Graph::Squeeze(int a, const std::vector<int>& dims) {
  if (!status_.ok() || dims.empty()) return a;
  std::vector<int64_t> sizes;
  std::vector<ViewDim> view(this->sizes(a).size());
  std::vector<size_t> kept;
  for (size_t d = 0; d < view.size(); ++d) {
    if (std::find(dims.begin(), dims.end(), static_cast<int>(d)) != dims.end()) continue;
    kept.push_back(d);
    sizes.push_back(this->sizes(a)[d]);
  }
  for (ViewDim& dim : view) dim.coef.assign(kept.size(), 0);
  for (size_t k = 0; k < kept.size(); ++k) view[kept[k]].coef[k] = 1;
  return View(a, std::move(sizes), std::move(view), -1);
}

int Graph::Unsqueeze(int a, int dim) {
  if (!status_.ok()) return a;
  std::vector<int64_t> sizes = this->sizes(a);
  std::vector<ViewDim> view(sizes.size());
  sizes.insert(sizes.begin() + dim, 1);
  for (size_t d = 0; d < view.size(); ++d) {
    view[d].coef.assign(sizes.size(), 0);
    view[d].coef[d < static_cast<size_t>(dim) ? d : d + 1] = 1;
  }
  return View(a, std::move(sizes), std::move(view), -1);
}

int Graph::Split(int a, int dim, int64_t low) {
  if (!status_.ok()) return a;
  std::vector<int64_t> sizes = this->sizes(a);
  const size_t at = static_cast<size_t>(dim);
  if (at >= sizes.size() || low < 1 || sizes[at] % low != 0) {
    return Fail(Status::Unsupported("a dimension does not split"));
  }
  std::vector<ViewDim> view(sizes.size());
  sizes[at] /= low;
  sizes.insert(sizes.begin() + dim + 1, low);
  for (size_t d = 0; d < view.size(); ++d) {
    view[d].coef.assign(sizes.size(), 0);
    view[d].coef[d <= at ? d : d + 1] = 1;
  }
  view[at].coef[at] = low;
  view[at].coef[at + 1] = 1;
  return View(a, std::move(sizes), std::move(view), -1);
}

int Graph::Merge(int a, int dim) {
  if (!status_.ok()) return a;
  GraphNode node;
  node.kind = GraphNode::Kind::kMerge;
  node.type = this->node(a).type;
  node.sizes = sizes(a);
  node.operands = {a};
  node.dim = dim;
  const size_t at = static_cast<size_t>(dim);
  node.integer = node.sizes[at + 1];
  node.sizes[at] *= node.sizes[at + 1];
  node.sizes.erase(node.sizes.begin() + dim + 1);
  return Append(std::move(node));
}

}  // namespace cudaforge::rows
