#include <string_view>
#include <vector>

#include "signature/op_facts.h"

namespace cudaforge {

std::string_view OpFamilyName(OpFamily family) {
  constexpr std::string_view kNames[] = {"attention", "convolution", "matmul",  "pooling",
                                         "loss",      "scan",        "softmax", "norm",
                                         "reduction", "other"};
  return kNames[static_cast<size_t>(family)];
}

const std::vector<std::string_view>& FamilyWords() {
  static const auto* const words = new std::vector<std::string_view>{
      "softmax",     "norm",          "pool",  "sum",       "mean",       "var",        "std",
      "max",         "min",           "prod",  "logsumexp", "loss",       "cum",        "entropy",
      "any",         "all",           "mm",    "matmul",    "linear",     "conv",       "attention",
      "einsum",      "trace",         "dot",   "topk",      "sort",       "median",     "scan",
      "interpolate", "embedding_bag", "outer", "kl_div",    "dist",       "similarity", "bilinear",
      "lstm",        "gru",           "count", "wrap",      "checkpoint", "vmap",       "autograd"};
  return *words;
}

}  // namespace cudaforge
