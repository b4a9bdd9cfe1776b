// The differences between the supported PyTorch releases (2.11 to 2.15), detected from the headers
// by feature, not by version. For Python see torch_compat.py.
#pragma once

namespace cudaforge {

// True if dimensions of a tensor can have names. `Impl`: c10::TensorImpl; 2.15 has no names.
template <typename Impl>
bool HasNames(const Impl& impl) {
  if constexpr (requires { impl.has_named_tensor_meta(); }) return impl.has_named_tensor_meta();
  return false;
}

}  // namespace cudaforge
