#include "dispatch/contract.h"

#include <algorithm>

#include "base/text.h"
#include "signature/from_aten_region.h"

namespace cudaforge {
namespace {

// Ignores strides of dimensions of size 1, which are only multiplied by zero.
bool SameStrides(const int64_t* sizes, const int64_t* a, const int64_t* b, size_t dims) {
  for (size_t d = 0; d < dims; ++d) {
    if (a[d] != b[d] && sizes[d] != 1) return false;
  }
  return true;
}

// "Float[2, 3]".
std::string TypeText(at::ScalarType dtype, at::IntArrayRef sizes) {
  std::string text = at::toString(dtype);
  for (size_t d = 0; d < sizes.size(); ++d) text += Cat(d == 0 ? "[" : ", ", sizes[d]);
  return text + (sizes.empty() ? "[]" : "]");
}

}  // namespace

InputContract::InputContract(const OpSignature& signature, int device_index)
    : device_(signature.device == DeviceType::kCuda
                  ? c10::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device_index))
                  : c10::Device(at::kCPU)) {
  for (const TensorSpec& spec : signature.inputs) {
    inputs_.push_back({ToScalarType(spec.dtype), static_cast<int32_t>(spec.sizes.size()),
                       numbers_.size(), spec.numel() == 0});
    numbers_.insert(numbers_.end(), spec.sizes.begin(), spec.sizes.end());
    numbers_.insert(numbers_.end(), spec.strides.begin(), spec.strides.end());
  }
}

InputContract::Fit InputContract::Check(c10::ArrayRef<c10::IValue> inputs) const {
  if (inputs.size() != inputs_.size()) return Fit::kShape;
  Fit fit = Fit::kYes;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Input& expected = inputs_[i];
    const at::Tensor& tensor = inputs[i].toTensor();
    const auto dims = static_cast<size_t>(expected.dims);
    const int64_t* sizes = numbers_.data() + expected.offset;
    if (tensor.scalar_type() != expected.dtype || tensor.dim() != expected.dims ||
        !std::equal(sizes, sizes + dims, tensor.sizes().data())) {
      return Fit::kShape;
    }
    if (!expected.empty && !SameStrides(sizes, sizes + dims, tensor.strides().data(), dims)) {
      fit = std::max(fit, Fit::kStrides);
    }
    if (tensor.device() != device_) fit = Fit::kDevice;
  }
  return fit;
}

std::string InputContract::Explain(c10::ArrayRef<c10::IValue> inputs) const {
  if (inputs.size() != inputs_.size()) {
    return Cat("it takes ", inputs_.size(), " inputs, not ", inputs.size());
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Input& expected = inputs_[i];
    const at::Tensor& tensor = inputs[i].toTensor();
    const at::IntArrayRef sizes(numbers_.data() + expected.offset,
                                static_cast<size_t>(expected.dims));
    if (tensor.scalar_type() == expected.dtype && tensor.sizes() == sizes) continue;
    return Cat("input ", i, " is ", TypeText(tensor.scalar_type(), tensor.sizes()),
               ", it was made for ", TypeText(expected.dtype, sizes));
  }
  return "";
}

}  // namespace cudaforge
