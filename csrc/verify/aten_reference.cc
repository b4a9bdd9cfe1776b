#include "verify/aten_reference.h"

#include <stdexcept>
#include <utility>

#include "base/random.h"
#include "verify/elements.h"
#include "verify/inputs.h"

namespace cudaforge {
namespace {

// Perturbed() where the tensor is, by the same rule with other random signs: large inputs do not
// cross the bus once more for each move.
at::Tensor Moved(const at::Tensor& tensor, const TensorSpec& spec, uint64_t seed) {
  const int64_t elements = spec.StorageBytes() / DTypeSize(spec.dtype);
  const at::Tensor flat = tensor.as_strided({elements}, {1}).to(at::kDouble);
  const auto start = static_cast<int64_t>(SplitMix(seed).Next() >> 1);
  at::Tensor bits = at::arange(elements, flat.options().dtype(at::kLong));
  for (const int64_t factor : {int64_t{0x1e3779b97f4a7c15}, int64_t{0x3f58476d1ce4e5b9}}) {
    bits.add_(start).mul_(factor);
    bits.bitwise_xor_(bits.bitwise_right_shift(at::Scalar(int64_t{31})));
  }
  const at::Tensor signs =
      bits.bitwise_and_(at::Scalar(int64_t{1})).to(at::kDouble).mul_(2).sub_(1);
  const at::Tensor underflow = flat.ne(0).to(at::kDouble).mul_(ComputeUnderflow(spec.dtype));
  return flat.mul(signs.mul(ComputeRoundoff(spec.dtype)).add_(1))
      .add_(signs.mul(underflow))
      .as_strided(tensor.sizes(), tensor.strides());
}

}  // namespace

std::vector<at::Tensor> AtenReference::Inputs(const InputSet& set) const {
  std::vector<at::Tensor> tensors;
  const auto& specs = program_.signature().inputs;
  for (size_t i = 0; i < specs.size(); ++i) {
    const auto options = at::TensorOptions().dtype(ToScalarType(specs[i].dtype));
    // Copied as raw storage, so that strides (expanded ones too) arrive as they are.
    const int64_t elements = specs[i].StorageBytes() / DTypeSize(specs[i].dtype);
    const at::Tensor flat =
        at::from_blob(const_cast<char*>(set.bytes[i].data()), {elements}, options);
    tensors.push_back(flat.to(device_, /*non_blocking=*/false, /*copy=*/true)
                          .as_strided(specs[i].sizes, specs[i].strides));
  }
  return tensors;
}

std::vector<std::string> AtenReference::Aten(const std::vector<at::Tensor>& inputs) const {
  std::vector<std::string> bytes;
  const std::vector<at::Tensor> outputs = program_.RunStrided(inputs);
  for (size_t o = 0; o < outputs.size(); ++o) {
    const TensorSpec& spec = program_.signature().output_spec(o);
    std::string storage(static_cast<size_t>(spec.StorageBytes()), '\0');
    const auto options = at::TensorOptions().dtype(outputs[o].scalar_type());
    if (outputs[o].scalar_type() != ToScalarType(spec.dtype) ||
        outputs[o].sizes() != at::IntArrayRef(spec.sizes)) {
      throw std::runtime_error("ATen's output " + std::to_string(o) +
                               " has another dtype or shape than the signature says");
    }
    if (!storage.empty()) {
      at::from_blob(storage.data(), spec.sizes, spec.strides, options).copy_(outputs[o]);
    }
    bytes.push_back(std::move(storage));
  }
  return bytes;
}

std::vector<std::vector<double>> AtenReference::Oracle(
    const std::vector<at::Tensor>& inputs) const {
  std::vector<std::vector<double>> values;
  for (const at::Tensor& output : program_.RunFp64(inputs)) {
    const size_t o = values.size();
    values.emplace_back();
    if (!IsFloating(program_.signature().output_spec(o).dtype)) continue;
    const at::Tensor host = output.to(at::kCPU, at::kDouble).contiguous();
    const auto* data = host.const_data_ptr<double>();
    values.back().assign(data, data + host.numel());
  }
  return values;
}

std::vector<at::Tensor> AtenReference::PerturbedInputs(const InputSet& set,
                                                       const std::vector<at::Tensor>& inputs,
                                                       uint64_t seed) const {
  std::vector<at::Tensor> tensors = inputs;
  const auto& specs = program_.signature().inputs;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!IsFloating(specs[i].dtype)) continue;
    if (device_.is_cuda() && specs[i].dtype != DType::kFloat64) {
      tensors[i] = Moved(tensors[i], specs[i], seed + i);
      continue;
    }
    std::vector<double> moved = Perturbed(specs[i], set.bytes[i], seed + i);
    tensors[i] = at::from_blob(moved.data(), specs[i].sizes, at::kDouble)
                     .to(device_, /*non_blocking=*/false, /*copy=*/true);
  }
  return tensors;
}

}  // namespace cudaforge
