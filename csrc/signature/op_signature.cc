#include "signature/op_signature.h"

#include <algorithm>
#include <array>

#include "base/integers.h"
#include "base/sha256.h"
#include "base/text.h"

namespace cudaforge {
namespace {

constexpr size_t kMaxInputs = 64;
constexpr size_t kMaxNodes = 64;
constexpr size_t kMaxOutputs = 16;
constexpr size_t kMaxDims = 8;
constexpr size_t kMaxArrayArgument = 64;
constexpr int64_t kMaxElements = int64_t{1} << 40;
constexpr size_t kMaxOpName = 128;

struct DTypeFacts {
  DType dtype;
  std::string_view name;
  int64_t size;
};
constexpr std::array<DTypeFacts, 7> kDTypes = {{{DType::kFloat32, "float32", 4},
                                                {DType::kFloat16, "float16", 2},
                                                {DType::kBFloat16, "bfloat16", 2},
                                                {DType::kFloat64, "float64", 8},
                                                {DType::kInt64, "int64", 8},
                                                {DType::kInt32, "int32", 4},
                                                {DType::kBool, "bool", 1}}};

const DTypeFacts& Facts(DType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }

Status Invalid(const std::string& where, const std::string& what) {
  return Status::InvalidArgument("signature: " + where + ": " + what);
}

Json SpecToJson(const TensorSpec& spec, bool is_input) {
  if (spec.absent) return nullptr;
  Json json = {{"dtype", DTypeName(spec.dtype)}, {"sizes", spec.sizes}, {"strides", spec.strides}};
  if (is_input) json["alignment"] = spec.alignment;
  if (spec.frozen) json["frozen"] = true;  // only then, so that other keys stay as they are
  return json;
}

// Unknown fields are errors, because they might change the meaning.
Status CheckFields(const Json& json, const std::string& where,
                   std::initializer_list<std::string_view> known) {
  if (!json.is_object()) return Invalid(where, "expected an object");
  for (const auto& [name, value] : json.items()) {
    if (!IsIn(name, known)) {
      return Invalid(where, "unknown field \"" + name.substr(0, 80) + "\"");
    }
  }
  return Status::Ok();
}

Result<TensorSpec> SpecFromJson(const Json& json, const std::string& where, bool is_input) {
  CF_RETURN_IF_ERROR(
      CheckFields(json, where, {"dtype", "sizes", "strides", "alignment", "frozen"}));
  TensorSpec spec;
  CF_ASSIGN_OR_RETURN(const std::string dtype, JsonString(json, "dtype"));
  CF_ASSIGN_OR_RETURN(spec.dtype, ParseDType(dtype));
  CF_ASSIGN_OR_RETURN(spec.sizes, JsonIntArray(json, "sizes"));
  CF_ASSIGN_OR_RETURN(spec.strides, JsonIntArray(json, "strides"));
  if (spec.sizes.size() > kMaxDims) return Invalid(where, "more than 8 dimensions");
  if (spec.sizes.size() != spec.strides.size()) return Invalid(where, "sizes and strides differ");
  // Neither the element count nor the reach of the strides may overflow later arithmetic.
  double elements = 1;
  double reach = 1;
  for (size_t d = 0; d < spec.sizes.size(); ++d) {
    if (spec.sizes[d] < 0 || spec.sizes[d] > kMaxElements)
      return Invalid(where, "size out of range");
    if (spec.strides[d] < 0 || spec.strides[d] > kMaxElements) {
      return Invalid(where, "stride out of range");
    }
    elements *= static_cast<double>(std::max<int64_t>(spec.sizes[d], 1));
    reach += static_cast<double>(spec.sizes[d]) * static_cast<double>(spec.strides[d]);
  }
  if (elements > static_cast<double>(kMaxElements) || reach > static_cast<double>(kMaxElements)) {
    return Invalid(where, "more than 2^40 elements");
  }
  if (is_input) {
    CF_ASSIGN_OR_RETURN(spec.alignment, JsonInt(json, "alignment"));
    if (!IsPowerOfTwo(spec.alignment) || spec.alignment < DTypeSize(spec.dtype) ||
        spec.alignment > 64) {
      return Invalid(where, "alignment must be a power of two from the element size to 64");
    }
  } else if (json.contains("alignment") || json.contains("frozen")) {
    return Invalid(where, "an output has no alignment and is not frozen");
  }
  if (json.contains("frozen")) {
    if (json["frozen"] != true) return Invalid(where, "frozen must be true or absent");
    spec.frozen = true;
  }
  return spec;
}

Result<int> Reference(const Json& json, const char* field, size_t count, const std::string& where) {
  CF_ASSIGN_OR_RETURN(const int64_t value, JsonInt(json, field));
  if (value < 0 || value >= static_cast<int64_t>(count)) {
    return Invalid(where, std::string(field) + " " + std::to_string(value) + " does not exist");
  }
  return static_cast<int>(value);
}

Status CheckOneOf(const Json& json, const char* field, const std::string& where,
                  std::initializer_list<std::string_view> known) {
  CF_ASSIGN_OR_RETURN(const std::string value, JsonString(json, field));
  if (!IsIn(value, known)) {
    return Invalid(where, "unknown " + std::string(field) + " \"" + value.substr(0, 80) + "\"");
  }
  return Status::Ok();
}

Result<int> OutReference(const Json& json, const Node& node, const std::string& where) {
  CF_ASSIGN_OR_RETURN(const int out, Reference(json, "out", node.outputs.size(), where));
  if (!node.HasOutput(out)) return Invalid(where, "output " + std::to_string(out) + " is absent");
  return out;
}

// `earlier`: the nodes that an argument may refer to.
Status CheckArgument(const Json& argument, size_t inputs, const std::vector<Node>& earlier,
                     const std::string& where, int depth) {
  if (argument.is_null() || argument.is_boolean() || argument.is_number()) return Status::Ok();
  if (argument.is_array()) {
    if (depth > 1) return Invalid(where, "arrays nested too deep");
    if (argument.size() > kMaxArrayArgument) return Invalid(where, "array too long");
    for (const Json& item : argument) {
      CF_RETURN_IF_ERROR(CheckArgument(item, inputs, earlier, where, depth + 1));
    }
    return Status::Ok();
  }
  if (!argument.is_object()) return Invalid(where, "not an argument");
  if (argument.contains("in")) {
    CF_RETURN_IF_ERROR(CheckFields(argument, where, {"in"}));
    return Reference(argument, "in", inputs, where).status();
  }
  if (argument.contains("node")) {
    CF_RETURN_IF_ERROR(CheckFields(argument, where, {"node", "out"}));
    CF_ASSIGN_OR_RETURN(const int node, Reference(argument, "node", earlier.size(), where));
    return OutReference(argument, earlier[static_cast<size_t>(node)], where).status();
  }
  if (argument.size() != 1) return Invalid(where, "not an argument");
  const std::string kind = argument.begin().key();
  if (kind == "float") return CheckOneOf(argument, "float", where, {"inf", "-inf", "nan"});
  if (kind == "device") return CheckOneOf(argument, "device", where, {"target"});
  if (kind == "layout") return CheckOneOf(argument, "layout", where, {"strided"});
  if (kind == "memory_format") {
    return CheckOneOf(argument, "memory_format", where,
                      {"contiguous", "preserve", "channels_last"});
  }
  if (kind == "dtype") {
    CF_ASSIGN_OR_RETURN(const std::string name, JsonString(argument, "dtype"));
    return ParseDType(name).status();
  }
  if (kind == "str") {
    CF_ASSIGN_OR_RETURN(const std::string text, JsonString(argument, "str"));
    return text.size() <= kMaxOpName ? Status::Ok() : Invalid(where, "string too long");
  }
  return Invalid(where, "unknown argument kind \"" + kind.substr(0, 80) + "\"");
}

Status CheckOpName(const std::string& op, const std::string& where) {
  const bool good_characters = std::all_of(op.begin(), op.end(), [](char c) {
    return IsLetter(c) || IsDigit(c) || c == '_' || c == ':' || c == '.';
  });
  if (op.size() > kMaxOpName || !good_characters || op.find("::") == std::string::npos) {
    return Invalid(where, "not an operator name: \"" + op.substr(0, 80) + "\"");
  }
  return Status::Ok();
}

Result<Node> NodeFromJson(const Json& json, size_t inputs, const std::vector<Node>& earlier,
                          const std::string& where) {
  CF_RETURN_IF_ERROR(CheckFields(json, where, {"op", "args", "kwargs", "outputs"}));
  Node node;
  CF_ASSIGN_OR_RETURN(node.op, JsonString(json, "op"));
  CF_RETURN_IF_ERROR(CheckOpName(node.op, where));
  CF_ASSIGN_OR_RETURN(node.args, JsonField(json, "args"));
  CF_ASSIGN_OR_RETURN(node.kwargs, JsonField(json, "kwargs"));
  if (!node.args.is_array() || node.args.size() > kMaxArrayArgument) {
    return Invalid(where, "args must be an array");
  }
  if (!node.kwargs.is_object() || node.kwargs.size() > kMaxArrayArgument) {
    return Invalid(where, "kwargs must be an object");
  }
  for (const Json& argument : node.args) {
    CF_RETURN_IF_ERROR(CheckArgument(argument, inputs, earlier, where + ".args", 0));
  }
  for (const auto& [name, argument] : node.kwargs.items()) {
    CF_RETURN_IF_ERROR(CheckArgument(argument, inputs, earlier, where + "." + name, 0));
  }
  CF_ASSIGN_OR_RETURN(const Json outputs, JsonField(json, "outputs"));
  if (!outputs.is_array() || outputs.empty() || outputs.size() > kMaxOutputs) {
    return Invalid(where, "outputs must be an array of 1 to 16");
  }
  for (const Json& output : outputs) {
    if (output.is_null()) {
      node.outputs.emplace_back().absent = true;
      continue;
    }
    CF_ASSIGN_OR_RETURN(TensorSpec spec, SpecFromJson(output, where + ".outputs", false));
    node.outputs.push_back(std::move(spec));
  }
  return node;
}

Status ReadAliases(const Json& json, OpSignature* signature) {
  CF_ASSIGN_OR_RETURN(const Json groups, JsonField(json, "aliases"));
  if (!groups.is_array()) return Invalid("aliases", "expected an array");
  std::vector<bool> seen(signature->inputs.size(), false);
  for (const Json& group : groups) {
    CF_ASSIGN_OR_RETURN(const std::vector<int64_t> members, JsonIntArray({{"g", group}}, "g"));
    if (members.size() < 2) return Invalid("aliases", "a group has two members or more");
    std::vector<int> out;
    for (int64_t member : members) {
      const bool exists = member >= 0 && member < static_cast<int64_t>(seen.size());
      if (!exists || seen[static_cast<size_t>(member)] || (!out.empty() && member <= out.back())) {
        return Invalid("aliases", "members are inputs, ascending, each in one group");
      }
      seen[static_cast<size_t>(member)] = true;
      out.push_back(static_cast<int>(member));
    }
    signature->aliases.push_back(std::move(out));
  }
  return Status::Ok();
}

}  // namespace

std::string_view DTypeName(DType dtype) { return Facts(dtype).name; }
int64_t DTypeSize(DType dtype) { return Facts(dtype).size; }

Result<DType> ParseDType(std::string_view name) {
  for (const DTypeFacts& facts : kDTypes) {
    if (facts.name == name) return facts.dtype;
  }
  return Status::Unsupported("dtype " + std::string(name.substr(0, 80)));
}

std::vector<std::string_view> DTypeNames() {
  std::vector<std::string_view> names;
  for (const DTypeFacts& facts : kDTypes) names.push_back(facts.name);
  return names;
}

bool IsFloating(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16 ||
         dtype == DType::kFloat64;
}

std::string_view DeviceTypeName(DeviceType type) {
  switch (type) {
    case DeviceType::kCuda:
      return "cuda";
    case DeviceType::kCpu:
      return "cpu";
  }
  return "";
}

Result<DeviceType> ParseDeviceType(std::string_view name) {
  for (DeviceType type : {DeviceType::kCpu, DeviceType::kCuda}) {
    if (name == DeviceTypeName(type)) return type;
  }
  return Status::InvalidArgument("unknown device '" + std::string(name.substr(0, 80)) +
                                 "'; known: cpu, cuda");
}

int64_t TensorSpec::numel() const {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  return count;
}

int64_t TensorSpec::StorageBytes() const {
  if (numel() == 0) return 0;
  int64_t last = 0;
  for (size_t d = 0; d < sizes.size(); ++d) last += (sizes[d] - 1) * strides[d];
  return (last + 1) * DTypeSize(dtype);
}

std::vector<int64_t> ContiguousStrides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<int64_t>(sizes[d], 1);
  }
  return strides;
}

Json OpSignature::ToJson() const {
  Json json = {{"format", kFormat},      {"device", DeviceTypeName(device)},
               {"aliases", aliases},     {"inputs", Json::array()},
               {"nodes", Json::array()}, {"outputs", Json::array()},
               {"numerics", numerics}};
  for (const TensorSpec& input : inputs) json["inputs"].push_back(SpecToJson(input, true));
  for (const Node& node : nodes) {
    Json specs = Json::array();
    for (const TensorSpec& output : node.outputs) specs.push_back(SpecToJson(output, false));
    json["nodes"].push_back(
        {{"op", node.op}, {"args", node.args}, {"kwargs", node.kwargs}, {"outputs", specs}});
  }
  for (const OutputRef& output : outputs) {
    json["outputs"].push_back({{"node", output.node}, {"out", output.out}});
  }
  return json;
}

std::string_view OpBaseName(std::string_view op) { return op.substr(0, op.find('.')); }

std::string_view OpShortName(std::string_view op) {
  const std::string_view name = OpBaseName(op);
  const size_t colons = name.find("::");
  return colons == std::string_view::npos ? name : name.substr(colons + 2);
}

bool IsTensorReference(const Json& argument) {
  return argument.is_object() && (argument.contains("in") || argument.contains("node"));
}

const TensorSpec* OpSignature::SpecOf(const Json& argument) const {
  if (!IsTensorReference(argument)) return nullptr;
  if (argument.contains("in")) return &inputs[argument["in"].get<size_t>()];
  return &nodes[argument["node"].get<size_t>()].outputs[argument["out"].get<size_t>()];
}

std::string OpSignature::Canonical() const { return CanonicalJson(ToJson()); }
std::string OpSignature::Key() const { return Sha256Hex(Canonical()); }

std::string OpSignature::Describe() const {
  std::string text;
  for (const Node& node : nodes) {
    if (!text.empty()) text += " -> ";
    text += OpShortName(node.op);
  }
  text += "(";
  for (size_t i = 0; i < inputs.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::string(DTypeName(inputs[i].dtype)) + "[";
    for (size_t d = 0; d < inputs[i].sizes.size(); ++d) {
      text += (d > 0 ? ", " : "") + std::to_string(inputs[i].sizes[d]);
    }
    text += "]";
  }
  return text + ")";
}

Result<OpSignature> OpSignature::FromJson(const Json& json) {
  CF_RETURN_IF_ERROR(
      CheckFields(json, "top level",
                  {"format", "device", "aliases", "inputs", "nodes", "outputs", "numerics"}));
  CF_ASSIGN_OR_RETURN(const int64_t format, JsonInt(json, "format"));
  if (format != kFormat) {
    return Status::Unsupported("signature format " + std::to_string(format) +
                               "; this version reads " + std::to_string(kFormat));
  }
  OpSignature signature;
  CF_ASSIGN_OR_RETURN(const std::string device, JsonString(json, "device"));
  CF_ASSIGN_OR_RETURN(signature.device, ParseDeviceType(device));
  CF_ASSIGN_OR_RETURN(signature.numerics, JsonField(json, "numerics"));
  if (!signature.numerics.is_object()) return Invalid("numerics", "expected an object");
  for (const auto& [name, value] : signature.numerics.items()) {
    if (!value.is_boolean() && !value.is_string()) return Invalid("numerics." + name, "bad value");
  }

  CF_ASSIGN_OR_RETURN(const Json inputs, JsonField(json, "inputs"));
  if (!inputs.is_array() || inputs.size() > kMaxInputs) return Invalid("inputs", "0 to 64 of them");
  for (const Json& input : inputs) {
    const std::string where = "inputs[" + std::to_string(signature.inputs.size()) + "]";
    CF_ASSIGN_OR_RETURN(TensorSpec spec, SpecFromJson(input, where, true));
    signature.inputs.push_back(std::move(spec));
  }
  CF_RETURN_IF_ERROR(ReadAliases(json, &signature));

  CF_ASSIGN_OR_RETURN(const Json nodes, JsonField(json, "nodes"));
  if (!nodes.is_array() || nodes.empty() || nodes.size() > kMaxNodes) {
    return Invalid("nodes", "1 to 64 of them");
  }
  for (const Json& item : nodes) {
    const std::string where = "nodes[" + std::to_string(signature.nodes.size()) + "]";
    CF_ASSIGN_OR_RETURN(Node node,
                        NodeFromJson(item, signature.inputs.size(), signature.nodes, where));
    signature.nodes.push_back(std::move(node));
  }

  CF_ASSIGN_OR_RETURN(const Json outputs, JsonField(json, "outputs"));
  if (!outputs.is_array() || outputs.empty() || outputs.size() > kMaxOutputs) {
    return Invalid("outputs", "1 to 16 of them");
  }
  for (const Json& item : outputs) {
    CF_RETURN_IF_ERROR(CheckFields(item, "outputs", {"node", "out"}));
    OutputRef output;
    CF_ASSIGN_OR_RETURN(output.node, Reference(item, "node", signature.nodes.size(), "outputs"));
    const Node& node = signature.nodes[static_cast<size_t>(output.node)];
    CF_ASSIGN_OR_RETURN(output.out, OutReference(item, node, "outputs"));
    signature.outputs.push_back(output);
  }
  return signature;
}

Result<OpSignature> OpSignature::Parse(std::string_view text) {
  CF_ASSIGN_OR_RETURN(const Json json, ParseJson(text, {.max_bytes = 1u << 20, .max_depth = 16}));
  return FromJson(json);
}

int64_t RegionId(std::string_view key) {
  CF_CHECK(key.size() == 64) << "a key has 64 hexadecimal digits";
  uint64_t id = 0;
  for (char digit : key.substr(0, 16)) {
    const int value = digit >= 'a' ? digit - 'a' + 10 : digit - '0';
    CF_CHECK(value >= 0 && value < 16) << "not a hexadecimal digit";
    id = id * 16 + static_cast<uint64_t>(value);
  }
  return static_cast<int64_t>(id >> 1);
}

Status OtherRegion(int64_t id) {
  return Status::InvalidArgument("region " + std::to_string(id) +
                                 " was called with another region's signature");
}

}  // namespace cudaforge
