#include <string>
#include <utility>

#include "verify/axis_rules.h"

namespace cudaforge {
namespace {

using Dims = RegionAxes::Dims;

void AddSizes(RuleContext* c, int argument, const Dims& dims) {
  for (size_t d = 0; d < dims.size(); ++d) {
    c->literals.push_back({argument, static_cast<int>(d), dims[d]});
  }
}

// Replaces the call by one with explicit sizes: a call that depends on sizes of 1 (squeeze) or -1
// would change when axes are cut.
void ToSizes(RuleContext* c) {
  const Json first = c->node.args[0];
  c->node = {std::string(CallToSizes(c->facts.dims)),
             {first, c->Out(0).sizes},
             Json::object(),
             c->node.outputs};
  AddSizes(c, 1, c->outputs[0]);
}

bool ReshapedRule(RuleContext* c) {
  if (!c->Has(0) || c->outputs.size() != 1) return false;
  AxisList left;
  for (const AxisList& dim : *c->args[0]) left.insert(left.end(), dim.begin(), dim.end());
  Dims& out = c->outputs[0];
  bool fits = true;
  for (const int64_t size : c->Out(0).sizes) {
    AxisList dim, rest;
    fits = fits && c->table.Split(left, size, &dim, &rest);
    if (fits) {
      left = rest;
    } else {
      dim = c->table.New(size, AxisState::kPositional);
    }
    out.push_back(dim);
  }
  if (!fits) c->Positional(left);
  ToSizes(c);
  return true;
}

bool PermutedRule(RuleContext* c) {
  if (!c->Has(0) || c->outputs.size() != 1) return false;
  const Dims& input = *c->args[0];
  const auto rank = static_cast<int64_t>(input.size());
  std::vector<int64_t> order;
  if (c->facts.dims == OpDims::kPermuted) {
    order = c->Ints(1);
  } else {
    for (int64_t d = 0; d < rank; ++d) order.push_back(d);
    int64_t a = c->Int(1, 0), b = c->Int(2, rank - 1);
    if (a < 0) a += rank;
    if (b < 0) b += rank;
    if (rank > 0 && (a < 0 || b < 0 || a >= rank || b >= rank)) return false;
    if (rank > 1) std::swap(order[static_cast<size_t>(a)], order[static_cast<size_t>(b)]);
  }
  if (static_cast<int64_t>(order.size()) != rank) return false;
  for (int64_t d : order) {
    if (d < 0) d += rank;
    if (d < 0 || d >= rank) return false;
    c->outputs[0].push_back(input[static_cast<size_t>(d)]);
  }
  return true;
}

bool ExpandedRule(RuleContext* c) {
  if (!c->Has(0) || c->outputs.size() != 1) return false;
  c->outputs[0] = c->Fresh(c->Out(0));
  if (!c->Align(*c->args[0], c->outputs[0])) return false;
  ToSizes(c);
  return true;
}

bool FilledRule(RuleContext* c) {
  if (c->Ints(0).size() != c->Out(0).sizes.size()) return c->Out(0).sizes.empty();
  c->outputs[0] = c->Fresh(c->Out(0));
  AddSizes(c, 0, c->outputs[0]);
  return true;
}

bool RepeatedRule(RuleContext* c) {
  const std::vector<int64_t> times = c->Ints(1);
  if (!c->Has(0) || times.size() != c->Out(0).sizes.size()) return false;
  const Dims& input = *c->args[0];
  const size_t lead = times.size() - input.size();
  for (size_t d = 0; d < times.size(); ++d) {
    AxisList dim = c->table.New(times[d], AxisState::kPositional);
    if (d >= lead) dim.insert(dim.end(), input[d - lead].begin(), input[d - lead].end());
    c->outputs[0].push_back(dim);
  }
  return true;
}

// Every tensor's dimension `d` is independent if `apart[d]`. The others are the first operand's, if
// sizes agree.
bool Apart(RuleContext* c, const std::vector<bool>& apart) {
  const Dims& input = *c->args[0];
  for (size_t d = 0; d < input.size(); ++d) {
    if (apart[d]) c->Positional(input[d]);
  }
  for (size_t k = 0; k < c->outputs.size(); ++k) {
    const TensorSpec& out = c->Out(k);
    Dims& dims = c->outputs[k];
    size_t from = 0;
    for (size_t d = 0; d < out.sizes.size(); ++d, ++from) {
      // Removes a dimension of size 1 if the call does (select).
      while (out.sizes.size() - d < input.size() - from && apart[from]) ++from;
      if (from >= input.size()) return false;
      dims.push_back(apart[from] ? c->table.New(out.sizes[d], AxisState::kPositional)
                                 : input[from]);
    }
  }
  return true;
}

bool AlongAxisRule(RuleContext* c) {
  if (!c->Has(0)) return false;
  const size_t rank = c->args[0]->size();
  std::vector<bool> apart(rank, false);
  const std::vector<int64_t> named = c->Ints(static_cast<size_t>(c->facts.axes));
  if (named.empty()) return false;
  for (int64_t d : named) {
    if (d < 0) d += static_cast<int64_t>(rank);
    if (d < 0 || d >= static_cast<int64_t>(rank)) return false;
    apart[static_cast<size_t>(d)] = true;
  }
  return Apart(c, apart);
}

bool LastTwoRule(RuleContext* c) {
  if (!c->Has(0) || c->args[0]->size() < 2) return false;
  std::vector<bool> apart(c->args[0]->size(), false);
  apart[apart.size() - 1] = apart[apart.size() - 2] = true;
  return Apart(c, apart);
}

bool PaddedRule(RuleContext* c) {
  if (!c->Has(0)) return false;
  const std::vector<int64_t> pads = c->Ints(1);
  const size_t rank = c->args[0]->size();
  std::vector<bool> apart(rank, false);
  if (pads.size() > 2 * rank) return false;
  for (size_t p = 0; p < pads.size(); ++p) {
    if (pads[p] != 0) apart[rank - 1 - p / 2] = true;
  }
  return Apart(c, apart);
}

bool JoinedRule(RuleContext* c) {
  if (c->lists.empty() || c->lists[0].empty() || c->outputs.size() != 1) return false;
  const bool stacks = c->facts.dims == OpDims::kStacked;
  const auto rank = static_cast<int64_t>(c->Out(0).sizes.size());
  int64_t at = c->Int(1);
  if (at < 0) at += rank;
  Dims& out = c->outputs[0];
  out = c->Fresh(c->Out(0));
  c->Positional(out[static_cast<size_t>(at)]);
  for (const Dims* one : c->lists[0]) {
    if (one == nullptr || static_cast<int64_t>(one->size()) != rank - (stacks ? 1 : 0))
      return false;
    size_t from = 0;
    for (int64_t d = 0; d < rank; ++d) {
      if (d == at) {
        if (!stacks) c->Positional((*one)[from++]);
        continue;
      }
      c->table.Unite((*one)[from++], out[static_cast<size_t>(d)]);
    }
  }
  return true;
}

bool LookedUpRule(RuleContext* c) {
  if (!c->Has(0) || !c->Has(1) || c->args[0]->size() != 2) return false;
  c->Positional((*c->args[0])[0]);
  c->outputs[0] = *c->args[1];
  c->outputs[0].push_back((*c->args[0])[1]);
  return true;
}

// For index tensors that are broadcast together, in adjacent dimensions.
bool IndexedRule(RuleContext* c) {
  if (!c->Has(0) || c->lists.size() < 2 || c->lists[1].empty()) return false;
  const Dims& input = *c->args[0];
  const auto& indices = c->lists[1];
  size_t first = 0, count = 0;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] == nullptr) continue;
    const TensorSpec* spec = c->signature.SpecOf(c->node.args[1][i]);
    if (spec->dtype == DType::kBool) return false;
    if (count > 0 && i != first + count) return false;
    if (count++ == 0) first = i;
  }
  if (count == 0 || indices.size() > input.size()) return false;
  const size_t made = c->Out(0).sizes.size() - (input.size() - count);
  Dims& out = c->outputs[0];
  out = c->Fresh(c->Out(0));
  const Dims places(out.begin() + static_cast<std::ptrdiff_t>(first),
                    out.begin() + static_cast<std::ptrdiff_t>(first + made));
  for (const Dims* one : indices) {
    if (one != nullptr && !c->Align(*one, places)) return false;
  }
  for (size_t d = 0; d < input.size(); ++d) {
    if (d >= first && d < first + count) {
      c->Positional(input[d]);
    } else {
      c->table.Unite(input[d], out[d < first ? d : d - count + made]);
    }
  }
  return true;
}

// gather: indices with the input's rank. index_select: indices of one dimension.
bool GatheredRule(RuleContext* c) {
  if (!c->Has(0) || !c->Has(2) || c->args[0]->empty()) return false;
  const Dims &input = *c->args[0], &index = *c->args[2];
  int64_t at = c->Int(1);
  if (at < 0) at += static_cast<int64_t>(input.size());
  const auto along = static_cast<size_t>(at);
  c->Positional(input[along]);
  if (index.size() == input.size() && c->Spec(2).sizes == c->Out(0).sizes) {
    const bool selects = input.size() == 1;
    for (size_t d = 0; d < input.size() && !selects; ++d) {
      if (d == along) continue;
      if (c->Spec(0).sizes[d] == c->Spec(2).sizes[d]) {
        c->table.Unite(input[d], index[d]);
      } else {
        c->Positional(input[d]);
        c->Positional(index[d]);
      }
    }
    c->outputs[0] = index;
    return true;
  }
  if (index.size() > 1) return false;
  c->outputs[0] = input;
  c->outputs[0][along] = index.empty() ? AxisList{} : index[0];
  return true;
}

bool CountedRule(RuleContext* c) {
  if (!c->Has(0) || !c->Has(1) || c->args[0]->empty()) return false;
  const Dims &gradient = *c->args[0], &indices = *c->args[1];
  const Dims places(gradient.begin(), gradient.end() - 1);
  if (places.size() != indices.size() || !c->Align(indices, places)) return false;
  for (const AxisList& dim : places) c->Permutable(dim);
  c->outputs[0] = c->Fresh(c->Out(0), AxisState::kPositional);
  c->outputs[0][1] = gradient.back();
  return true;
}

}  // namespace

bool ApplyLayoutRule(RuleContext* c) {
  switch (c->facts.dims) {
    case OpDims::kReshaped:
      return ReshapedRule(c);
    case OpDims::kPermuted:
    case OpDims::kTransposed:
      return PermutedRule(c);
    case OpDims::kExpanded:
      return ExpandedRule(c);
    case OpDims::kFilled:
      return FilledRule(c);
    case OpDims::kRepeated:
      return RepeatedRule(c);
    case OpDims::kPadded:
      return PaddedRule(c);
    case OpDims::kJoined:
    case OpDims::kStacked:
      return JoinedRule(c);
    case OpDims::kAlongAxis:
      return AlongAxisRule(c);
    case OpDims::kLastTwo:
      return LastTwoRule(c);
    case OpDims::kLookedUp:
      return LookedUpRule(c);
    case OpDims::kIndexed:
      return IndexedRule(c);
    case OpDims::kGathered:
      return GatheredRule(c);
    case OpDims::kCounted:
      return CountedRule(c);
    default:
      return false;
  }
}

}  // namespace cudaforge
