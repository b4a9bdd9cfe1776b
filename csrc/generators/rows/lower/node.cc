#include "generators/rows/lower/node.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace cudaforge::rows {

NodeReader::NodeReader(Graph& graph, const OpSignature& signature, size_t node,
                       std::vector<std::vector<Tensor>>& results, const std::vector<Tensor>& inputs)
    : graph_(graph),
      device_(signature.device),
      node_(signature.nodes[node]),
      results_(results),
      mine_(results[node]),
      inputs_(inputs) {
  mine_.resize(node_.outputs.size());
}

void NodeReader::Fail(const std::string& reason) {
  graph_.Fail(Status::Unsupported(node_.op + ": " + reason));
}

const TensorSpec& NodeReader::spec(size_t out) const {
  static const TensorSpec kNone;
  return out < node_.outputs.size() ? node_.outputs[out] : kNone;
}

const Json& NodeReader::Arg(size_t position, const char* name) const {
  if (node_.args.is_array() && position < node_.args.size()) return node_.args[position];
  return MemberOrNull(node_.kwargs, name);
}

bool NodeReader::IsTensor(size_t position, const char* name) const {
  return IsTensorReference(Arg(position, name));
}

Tensor NodeReader::Resolve(const Json& reference) {
  auto integer = [&](const char* field) -> int64_t {
    const auto found = reference.find(field);
    return found != reference.end() && found->is_number_integer() ? found->get<int64_t>() : -1;
  };
  if (reference.is_object() && reference.contains("in")) {
    const int64_t index = integer("in");
    if (index >= 0 && index < static_cast<int64_t>(inputs_.size())) {
      return inputs_[static_cast<size_t>(index)];
    }
  } else if (reference.is_object() && reference.contains("node")) {
    const int64_t index = integer("node"), out = integer("out");
    if (index >= 0 && index < static_cast<int64_t>(results_.size()) && out >= 0 &&
        out < static_cast<int64_t>(results_[static_cast<size_t>(index)].size())) {
      return results_[static_cast<size_t>(index)][static_cast<size_t>(out)];
    }
  }
  return {};
}

Tensor NodeReader::OptionalTensor(size_t position, const char* name) {
  const Json& arg = Arg(position, name);
  if (arg.is_null()) return {};
  Tensor tensor = Resolve(arg);
  if (!tensor.defined()) Fail(std::string(name) + " is not a tensor that is known");
  return tensor;
}

Tensor NodeReader::TensorArg(size_t position, const char* name) {
  Tensor tensor = OptionalTensor(position, name);
  if (!tensor.defined()) {
    Fail(std::string(name) + " is missing");
    tensor.node = 0;
  }
  return tensor;
}

double NodeReader::Number(size_t position, const char* name, double absent) {
  const Json& arg = Arg(position, name);
  if (arg.is_null()) return absent;
  if (arg.is_boolean()) return arg.get<bool>() ? 1 : 0;
  if (arg.is_number()) return arg.get<double>();
  if (arg.is_object() && arg.contains("float") && arg["float"].is_string()) {
    const std::string& text = arg["float"].get_ref<const std::string&>();
    const double infinity = std::numeric_limits<double>::infinity();
    if (text == "inf") return infinity;
    if (text == "-inf") return -infinity;
    if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  }
  Fail(std::string(name) + " is not a number");
  return absent;
}

int64_t NodeReader::Int(size_t position, const char* name, int64_t absent) {
  const Json& arg = Arg(position, name);
  if (arg.is_null()) return absent;
  if (arg.is_number_integer()) return arg.get<int64_t>();
  Fail(std::string(name) + " is not an integer");
  return absent;
}

bool NodeReader::Flag(size_t position, const char* name, bool absent) {
  const Json& arg = Arg(position, name);
  if (arg.is_null()) return absent;
  if (arg.is_boolean()) return arg.get<bool>();
  Fail(std::string(name) + " is not a boolean");
  return absent;
}

std::string NodeReader::Text(size_t position, const char* name, const char* absent) {
  const Json& arg = Arg(position, name);
  if (arg.is_null()) return absent;
  if (arg.is_object() && arg.contains("str") && arg["str"].is_string()) {
    return arg["str"].get<std::string>();
  }
  Fail(std::string(name) + " is not a string");
  return absent;
}

std::vector<int64_t> NodeReader::Ints(size_t position, const char* name) {
  const Json& arg = Arg(position, name);
  if (arg.is_null()) return {};
  if (arg.is_number_integer()) return {arg.get<int64_t>()};
  std::vector<int64_t> values;
  for (const Json& value : arg) {
    if (!arg.is_array() || !value.is_number_integer()) {
      Fail(std::string(name) + " is not a list of integers");
      return {};
    }
    values.push_back(value.get<int64_t>());
  }
  return values;
}

int NodeReader::Rounded(int node, DType dtype) {
  if (dtype == DType::kFloat16) return graph_.Unary(ScalarOp::kRoundToHalf, node);
  if (dtype == DType::kBFloat16) return graph_.Unary(ScalarOp::kRoundToBF16, node);
  return node;
}

int NodeReader::Exact(const Tensor& tensor) {
  return tensor.exact ? tensor.node : Rounded(tensor.node, tensor.dtype);
}

int NodeReader::As(const Tensor& tensor, Type type) {
  return graph_.Cast(IsFloatType(type) ? tensor.node : Exact(tensor), type);
}

int NodeReader::Operand(size_t position, const char* name, Type type) {
  if (IsTensor(position, name)) return As(TensorArg(position, name), type);
  const Json& arg = Arg(position, name);
  if (arg.is_null()) Fail(std::string(name) + " is missing");
  if (arg.is_number_integer() && type == Type::kI64) return graph_.Integer(arg.get<int64_t>());
  return graph_.Number(type, Number(position, name, 0));
}

std::vector<int> NodeReader::Dims(size_t position, const char* name, size_t rank) {
  std::vector<int> dims;
  for (int64_t dim : Ints(position, name)) {
    const int64_t wrapped = dim < 0 ? dim + static_cast<int64_t>(rank) : dim;
    if (rank == 0 && (dim == 0 || dim == -1)) continue;
    if (wrapped < 0 || wrapped >= static_cast<int64_t>(rank) ||
        std::count(dims.begin(), dims.end(), static_cast<int>(wrapped)) > 0) {
      Fail(std::string(name) + " is out of range");
      return {};
    }
    dims.push_back(static_cast<int>(wrapped));
  }
  if (dims.empty()) {
    for (size_t d = 0; d < rank; ++d) dims.push_back(static_cast<int>(d));
  }
  std::sort(dims.begin(), dims.end());
  return dims;
}

int NodeReader::Dim(size_t position, const char* name, size_t rank) {
  const std::vector<int> dims = Dims(position, name, rank);
  if (dims.size() != 1) {
    Fail(std::string(name) + " must be one dimension of a tensor that has dimensions");
    return 0;
  }
  return dims[0];
}

void NodeReader::Result(size_t out, int node, bool exact) {
  if (!graph_.status().ok() || out >= mine_.size() || node_.outputs[out].absent) return;
  const TensorSpec& spec = node_.outputs[out];
  if (graph_.node(node).type != ComputeType(spec.dtype)) {
    node = graph_.Cast(node, ComputeType(spec.dtype));
  }
  if (graph_.sizes(node) != spec.sizes) {
    Fail("the output's shape is not the expected one");
    return;
  }
  const bool half = spec.dtype == DType::kFloat16 || spec.dtype == DType::kBFloat16;
  mine_[out] = {node, spec.dtype, exact || !half};
}

}  // namespace cudaforge::rows
