#include "dispatch/labels.h"

#include "signature/roles.h"

namespace cudaforge {
namespace {

bool InRange(const int64_t* data, c10::IntArrayRef sizes, c10::IntArrayRef strides,
             const LabelInput& input) {
  if (sizes.empty()) {
    return (*data >= 0 && *data < input.limit) || *data == input.ignore;
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
  // PyTorch's losses also accept uint8 labels, which regions do not support.
  if (labels.scalar_type() != at::kLong) return false;
  return InRange(labels.const_data_ptr<int64_t>(), labels.sizes(), labels.strides(), input);
}

}  // namespace cudaforge
