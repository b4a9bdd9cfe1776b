#include "verify/axis_rules.h"

namespace cudaforge {
namespace {

using Dims = RegionAxes::Dims;

bool ProductRule(RuleContext* c) {
  const auto at = static_cast<size_t>(c->facts.left);
  if (!c->Has(at) || !c->Has(at + 1)) return false;
  const Dims &a = *c->args[at], &b = *c->args[at + 1];
  const size_t rank = a.size();
  if (rank < 2 || b.size() != rank || c->outputs.size() != 1) return false;
  c->table.Unite(a[rank - 1], b[rank - 2]);
  c->Permutable(a[rank - 1]);
  Dims& out = c->outputs[0];
  for (size_t d = 0; d + 2 < rank; ++d) {
    if (c->Spec(at).sizes[d] != c->Spec(at + 1).sizes[d]) return false;
    c->table.Unite(a[d], b[d]);
    out.push_back(a[d]);
  }
  out.push_back(a[rank - 2]);
  out.push_back(b[rank - 1]);
  for (size_t i = 0; i < c->args.size(); ++i) {
    if (i == at || i == at + 1 || !c->Has(i)) continue;
    if (!c->Align(*c->args[i], out)) return false;
  }
  return true;
}

// How input and output channels of a convolution are connected.
enum class Mixing {
  kAll,        // every output channel with every input channel
  kEach,       // one to one
  kSomething,  // in groups
};

Mixing ChannelsOf(const TensorSpec& input, const TensorSpec& weight, int64_t groups,
                  bool transposed) {
  if (groups == 1) return Mixing::kAll;
  const bool each = !transposed && groups == input.sizes[1] && groups == weight.sizes[0];
  return each ? Mixing::kEach : Mixing::kSomething;
}

// input, weight, bias, stride, padding, dilation, transposed, output_padding, groups.
bool ConvolutionRule(RuleContext* c) {
  if (!c->Has(0) || !c->Has(1) || c->outputs.size() != 1) return false;
  const Dims &input = *c->args[0], &weight = *c->args[1];
  if (input.size() < 3 || weight.size() != input.size()) return false;
  const bool transposed = c->Bool(6);
  const Mixing channels = ChannelsOf(c->Spec(0), c->Spec(1), c->Int(8, 1), transposed);
  const AxisList& made = weight[transposed ? 1 : 0];
  const AxisList& read = weight[transposed ? 0 : 1];
  Dims& out = c->outputs[0];
  out = c->Fresh(c->Out(0), AxisState::kPositional);
  out[0] = input[0];
  for (size_t d = 2; d < input.size(); ++d) {
    c->Positional(input[d]);
    c->Positional(weight[d]);
  }
  switch (channels) {
    case Mixing::kAll:
      c->table.Unite(input[1], read);
      c->Permutable(input[1]);
      out[1] = made;
      break;
    case Mixing::kEach:
      c->table.Unite(input[1], made);
      out[1] = made;
      c->literals.push_back({8, -1, made});
      break;
    case Mixing::kSomething:
      c->Positional(input[1]);
      c->Positional(weight[0]);
      c->Positional(weight[1]);
      break;
  }
  return !c->Has(2) || c->Align(*c->args[2], {out[1]});
}

// grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding,
// groups, output_mask.
bool ConvolutionBackwardRule(RuleContext* c) {
  if (!c->Has(0) || !c->Has(1) || !c->Has(2) || c->outputs.size() != 3) return false;
  const Dims &gradient = *c->args[0], &input = *c->args[1], &weight = *c->args[2];
  if (input.size() < 3 || weight.size() != input.size() || gradient.size() != input.size()) {
    return false;
  }
  const bool transposed = c->Bool(7);
  const Mixing channels = ChannelsOf(c->Spec(1), c->Spec(2), c->Int(9, 1), transposed);
  const AxisList& made = weight[transposed ? 1 : 0];
  const AxisList& read = weight[transposed ? 0 : 1];
  c->table.Unite(gradient[0], input[0]);
  for (size_t d = 2; d < input.size(); ++d) {
    c->Positional(gradient[d]);
    c->Positional(input[d]);
    c->Positional(weight[d]);
  }
  if (channels == Mixing::kSomething) {
    for (const Dims* dims : {&gradient, &input}) c->Positional((*dims)[1]);
    c->Positional(made);
    c->Positional(read);
  } else {
    c->table.Unite(gradient[1], made);
    c->table.Unite(input[1], channels == Mixing::kAll ? read : made);
  }
  if (channels == Mixing::kEach) c->literals.push_back({9, -1, made});
  if (c->Ints(3).size() == 1 && c->Ints(3)[0] != 0) c->literals.push_back({3, 0, gradient[1]});
  for (size_t k = 0; k < 3; ++k) {
    if (c->Out(k).absent) continue;
    c->outputs[k] = k == 0 ? input : k == 1 ? weight : Dims{gradient[1]};
    if (c->outputs[k].size() != c->Out(k).sizes.size()) return false;
    if (!c->needed[k]) continue;
    if (k > 0) c->Permutable(input[0]);
    if (k == 0 && channels == Mixing::kAll) c->Permutable(gradient[1]);
  }
  return true;
}

// query, key, value, attn_mask, dropout_p, is_causal.
bool AttentionRule(RuleContext* c) {
  if (!c->Has(0) || !c->Has(1) || !c->Has(2) || c->outputs.size() != 1) return false;
  const Dims &q = *c->args[0], &k = *c->args[1], &v = *c->args[2];
  const size_t rank = q.size();
  if (rank < 3 || k.size() != rank || v.size() != rank) return false;
  for (size_t d = 0; d + 2 < rank; ++d) {
    for (const size_t other : {1, 2}) {
      const AxisList& keys = (*c->args[other])[d];
      const int64_t some = c->Spec(other).sizes[d], all = c->Spec(0).sizes[d];
      AxisList head, rest;
      if (some == all || some == 1) {
        if (some == all) c->table.Unite(q[d], keys);
      } else if (some > 0 && all % some == 0 && c->table.Split(q[d], some, &head, &rest)) {
        c->table.Unite(head, keys);  // several query heads use one key head
      } else {
        return false;
      }
    }
  }
  c->table.Unite(q[rank - 1], k[rank - 1]);
  c->table.Unite(k[rank - 2], v[rank - 2]);
  c->Permutable(q[rank - 1]);
  c->causal = c->Bool(5);
  if (c->causal) {  // a mask may replace it: see RegionAxes::Adapted
    c->Positional(k[rank - 2]);
  } else {
    c->Permutable(k[rank - 2]);
  }
  Dims& out = c->outputs[0];
  out = q;
  out[rank - 1] = v[rank - 1];
  if (!c->Has(3)) return true;
  Dims scores = q;
  scores[rank - 1] = k[rank - 2];
  return c->Align(*c->args[3], scores);
}

}  // namespace

bool ApplyProductRule(RuleContext* c) {
  switch (c->facts.dims) {
    case OpDims::kProduct:
      return ProductRule(c);
    case OpDims::kConvolution:
      return ConvolutionRule(c);
    case OpDims::kConvolutionBackward:
      return ConvolutionBackwardRule(c);
    case OpDims::kAttention:
      return AttentionRule(c);
    default:
      return false;
  }
}

}  // namespace cudaforge
