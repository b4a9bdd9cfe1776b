#include "kernel/tensor_map.h"

#include <string>

namespace cudaforge {
namespace {

constexpr size_t kMaxRank = 5;
constexpr int64_t kMaxSize = (int64_t{1} << 32) - 1;
constexpr int64_t kMaxStride = (int64_t{1} << 40) - 1;
constexpr int64_t kMaxBox = 256;
constexpr int64_t kChunk = 16;  // bytes: addresses, strides and box rows are multiples

Status BadMap(const std::string& what) { return Status::InvalidArgument(what); }

Result<int64_t> NumberOfMap(const IntExpr& expr, const OpSignature& signature, const char* what,
                            int64_t high) {
  CF_ASSIGN_OR_RETURN(const int64_t value, expr.Evaluate(signature));
  if (value >= 1 && value <= high) return value;
  return BadMap(std::string(what) + ": " + std::to_string(value) + " is not in [1, " +
                std::to_string(high) + "]");
}

// Bytes of the buffer from its first element.
Result<int64_t> BytesOfBuffer(const LaunchArg& of, const LaunchPlan& plan,
                              const OpSignature& signature) {
  const bool input = of.kind == LaunchArg::Kind::kInput;
  const bool output = of.kind == LaunchArg::Kind::kOutput;
  const bool prepared = of.kind == LaunchArg::Kind::kPrepared;
  if (of.kind == LaunchArg::Kind::kInOut) {
    return Status::Unsupported("maps of in-out operands are not supported yet");
  }
  if (!input && !output && !prepared && of.kind != LaunchArg::Kind::kScratch) {
    return BadMap("of: an input, an output, a scratch buffer or a prepared operand");
  }
  const size_t count = input      ? signature.inputs.size()
                       : output   ? signature.outputs.size()
                       : prepared ? plan.prepared_bytes.size()
                                  : plan.scratch_bytes.size();
  const auto index = static_cast<size_t>(of.index);
  if (of.index < 0 || index >= count) {
    return BadMap("of: buffer " + std::to_string(of.index) + " does not exist");
  }
  if (output) return signature.output_spec(index).StorageBytes();
  if (prepared) return plan.prepared_bytes[index].Evaluate(signature);
  if (!input) return plan.scratch_bytes[index].bytes.Evaluate(signature);
  const TensorSpec& spec = signature.inputs[index];
  if (spec.alignment < kChunk) {
    return BadMap("of: the region aligns input " + std::to_string(index) + " to " +
                  std::to_string(spec.alignment) + " bytes; a map needs 16");
  }
  return spec.StorageBytes();
}

// Returns true if the last element is inside of `bytes`. Does not overflow.
bool IsInside(const EvaluatedTensorMap& map, int64_t bytes) {
  auto left = static_cast<uint64_t>(bytes);
  auto stride = static_cast<uint64_t>(DTypeSize(map.dtype));
  if (left < stride) return false;
  left -= stride;
  for (size_t d = 0; d < map.sizes.size(); ++d) {
    if (d > 0) stride = map.strides[d - 1];
    const uint64_t steps = map.sizes[d] - 1;
    if (steps > left / stride) return false;
    left -= steps * stride;
  }
  return true;
}

Status CheckBoxRow(const EvaluatedTensorMap& map) {
  const int64_t row = map.box[0] * DTypeSize(map.dtype);
  if (row % kChunk != 0) {
    return BadMap("box: its rows have " + std::to_string(row) + " bytes, no multiple of 16");
  }
  if (map.swizzle != 0 && row > map.swizzle) {
    return BadMap("box: its rows have " + std::to_string(row) + " bytes, more than the swizzle's " +
                  std::to_string(map.swizzle));
  }
  return Status::Ok();
}

}  // namespace

Result<EvaluatedTensorMap> EvaluateTensorMap(const TensorMap& map, const LaunchPlan& plan,
                                             const OpSignature& signature) {
  const size_t rank = map.sizes.size();
  if (rank < 1 || rank > kMaxRank) return BadMap("sizes: 1 to 5 of them");
  if (map.strides.size() != rank - 1) return BadMap("strides: one fewer than sizes");
  if (map.box.size() != rank) return BadMap("box: as many numbers as sizes");
  EvaluatedTensorMap ready;
  const Result<DType> dtype = ParseDType(map.dtype);
  if (!dtype.ok() || *dtype == DType::kBool) {
    return BadMap("dtype: float32, float16, bfloat16, float64, int32 or int64");
  }
  ready.dtype = *dtype;
  ready.swizzle = map.swizzle;
  if (map.swizzle != 0 && map.swizzle != 32 && map.swizzle != 64 && map.swizzle != 128) {
    return BadMap("swizzle: 0, 32, 64 or 128");
  }
  for (const IntExpr& expr : map.sizes) {
    CF_ASSIGN_OR_RETURN(const int64_t size, NumberOfMap(expr, signature, "sizes", kMaxSize));
    ready.sizes.push_back(static_cast<uint64_t>(size));
  }
  for (const IntExpr& expr : map.strides) {
    CF_ASSIGN_OR_RETURN(const int64_t stride, NumberOfMap(expr, signature, "strides", kMaxStride));
    if (stride % kChunk != 0) {
      return BadMap("strides: " + std::to_string(stride) + " bytes are no multiple of 16");
    }
    ready.strides.push_back(static_cast<uint64_t>(stride));
  }
  for (const IntExpr& expr : map.box) {
    CF_ASSIGN_OR_RETURN(const int64_t size, NumberOfMap(expr, signature, "box", kMaxBox));
    ready.box.push_back(static_cast<uint32_t>(size));
  }
  CF_RETURN_IF_ERROR(CheckBoxRow(ready));
  CF_ASSIGN_OR_RETURN(const int64_t bytes, BytesOfBuffer(map.of, plan, signature));
  if (bytes < 0 || !IsInside(ready, bytes)) {
    return BadMap("sizes and strides reach beyond the buffer's " + std::to_string(bytes) +
                  " bytes");
  }
  return ready;
}

}  // namespace cudaforge
