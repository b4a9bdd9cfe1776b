#include "dispatch/labels.h"

#include "verify/roles.h"

namespace cudaforge {
namespace {

template <typename Label>
bool InRange(const Label* data, c10::IntArrayRef sizes, c10::IntArrayRef strides,
             const LabelInput& input) {
  if (sizes.empty()) {
    const auto label = static_cast<int64_t>(*data);
    return (label >= 0 && label < input.limit) || label == input.ignore;
  }
  for (int64_t i = 0; i < sizes[0]; ++i) {
    if (!InRange(data + i * strides[0], sizes.slice(1), strides.slice(1), input)) return false;
  }
  return true;
}

}  // namespace

std::vector<LabelInput> FindLabels(const OpSignature& signature) {
  std::vector<LabelInput> found;
  if (signature.device != DeviceType::kCpu) return found;
  const Result<std::vector<InputRole>> roles = FindRoles(signature);
  if (!roles.ok()) return found;
  for (size_t i = 0; i < roles->size(); ++i) {
    const InputRole& role = (*roles)[i];
    if (role.kind == InputRole::Kind::kTarget) found.push_back({i, role.limit, role.ignore_index});
  }
  return found;
}

bool AreInRange(const at::Tensor& labels, const LabelInput& input) {
  const void* data = labels.const_data_ptr();
  switch (labels.scalar_type()) {
    case at::kLong:
      return InRange(static_cast<const int64_t*>(data), labels.sizes(), labels.strides(), input);
    case at::kInt:
      return InRange(static_cast<const int32_t*>(data), labels.sizes(), labels.strides(), input);
    default:  // PyTorch has no losses of others
      return true;
  }
}

}  // namespace cudaforge
