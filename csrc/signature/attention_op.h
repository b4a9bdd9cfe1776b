// The overloads of attention that a region may hold.
#pragma once

#include <string_view>

namespace cudaforge {

struct AttentionOp {
  std::string_view name;  // "aten::scaled_dot_product_attention": without an overload's
  int causal;             // the position of is_causal
  int mask;               // that of attn_mask; -1: it is keyword-only
};

inline constexpr AttentionOp kAttentionOps[] = {
    {"aten::scaled_dot_product_attention", 5, 3},
    {"aten::_scaled_dot_product_flash_attention_for_cpu", 4, -1},
};

// Null: `name` is none of them.
inline const AttentionOp* FindAttentionOp(std::string_view name) {
  for (const AttentionOp& op : kAttentionOps) {
    if (op.name == name) return &op;
  }
  return nullptr;
}

}  // namespace cudaforge
