// OpSignature: a complete description of a computation. Regions with equal signatures are
// interchangeable. A region is one ATen call or a small connected subgraph of ATen calls, without
// mutation, on one device. The SHA-256 of its canonical JSON is the key: see docs/formats.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace cudaforge {

enum class DType { kFloat32, kFloat16, kBFloat16, kFloat64, kInt64, kInt32, kBool };

std::string_view DTypeName(DType dtype);          // "float32"
Result<DType> ParseDType(std::string_view name);  // kUnsupported for any other name
std::vector<std::string_view> DTypeNames();       // of all DTypes, named as in torch
int64_t DTypeSize(DType dtype);                   // bytes
bool IsFloating(DType dtype);

enum class DeviceType { kCpu, kCuda };
std::string_view DeviceTypeName(DeviceType type);           // "cpu", "cuda"
Result<DeviceType> ParseDeviceType(std::string_view name);  // kInvalidArgument for any other

// Strides are in elements, and may be zero (expanded) but not negative. `alignment`: the data
// pointer is a multiple of it, in bytes; a power of two from the element size to 64.
struct TensorSpec {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t alignment = 1;  // meaningful for inputs only
  bool absent = false;    // an undefined output of a node; the other fields are defaults
  // An input whose values do not change, as the user promised (docs/options.md, frozen_weights).
  bool frozen = false;

  int64_t numel() const;
  // Bytes from the first element to the end of the last one that the strides reach; 0 if empty.
  int64_t StorageBytes() const;
  bool operator==(const TensorSpec&) const = default;
};

// Returns true if an argument is {"in":i} or {"node":n,"out":k}.
bool IsTensorReference(const Json& argument);

// Row-major strides for `sizes`.
std::vector<int64_t> ContiguousStrides(const std::vector<int64_t>& sizes);

// "aten::sum" of "aten::sum.dim_IntList": the name without its overload. Part of `op`.
std::string_view OpBaseName(std::string_view op);
// "sum" of "aten::sum.dim_IntList": without its namespace as well. Part of `op`.
std::string_view OpShortName(std::string_view op);

struct Node {
  std::string op;  // "aten::_softmax", overload after a dot: "aten::sum.dim_IntList"
  Json args = Json::array();
  Json kwargs = Json::object();
  std::vector<TensorSpec> outputs;  // one per tensor the schema returns

  // Returns true if `out` is an output that is not absent.
  bool HasOutput(int64_t out) const {
    return out >= 0 && out < static_cast<int64_t>(outputs.size()) &&
           !outputs[static_cast<size_t>(out)].absent;
  }
};

struct OutputRef {
  int node = 0;
  int out = 0;
  bool operator==(const OutputRef&) const = default;
};

struct OpSignature {
  static constexpr int kFormat = 1;

  DeviceType device = DeviceType::kCpu;
  std::vector<TensorSpec> inputs;
  std::vector<std::vector<int>> aliases;
  std::vector<Node> nodes;
  std::vector<OutputRef> outputs;
  Json numerics = Json::object();

  const TensorSpec& output_spec(size_t i) const {
    return nodes[static_cast<size_t>(outputs[i].node)].outputs[static_cast<size_t>(outputs[i].out)];
  }

  // Returns the tensor that {"in":i} or {"node":n,"out":k} refers to; null for any other argument.
  const TensorSpec* SpecOf(const Json& argument) const;

  Json ToJson() const;
  std::string Canonical() const;  // CanonicalJson(ToJson())
  std::string Key() const;        // SHA-256 of Canonical(), 64 hexadecimal digits
  // A short line for display: "softmax(float32[8, 128])", "add -> native_layer_norm(...)".
  std::string Describe() const;

  // Parses untrusted text and checks it: known format, references point backwards, ranges and
  // counts within limits (64 inputs, 64 nodes, 16 outputs, 8 dimensions, 2^40 elements).
  static Result<OpSignature> FromJson(const Json& json);
  static Result<OpSignature> Parse(std::string_view text);
};

// The first 63 bits of the key as a non-negative integer: the `id` of `cudaforge::region_v1`.
int64_t RegionId(std::string_view key);

// kInvalidArgument: region `id` was called with another region's signature.
Status OtherRegion(int64_t id);

}  // namespace cudaforge
