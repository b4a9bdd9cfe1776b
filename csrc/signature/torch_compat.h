// What differs between the releases of PyTorch that this source builds for (2.11 to 2.15), asked of
// the headers by feature, not by version. What differs in Python: torch_compat.py.
#pragma once

namespace cudaforge {

// Whether the dimensions of a tensor have names. `Impl`: c10::TensorImpl; 2.15 has no such names.
template <typename Impl>
bool HasNames(const Impl& impl) {
  if constexpr (requires { impl.has_named_tensor_meta(); }) return impl.has_named_tensor_meta();
  return false;
}

}  // namespace cudaforge
