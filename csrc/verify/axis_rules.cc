#include "verify/axis_rules.h"

namespace cudaforge {
namespace {

using Dims = RegionAxes::Dims;

bool AlignedRule(RuleContext* c) {
  std::vector<const Dims*> operands;
  for (const Dims* dims : c->args) {
    if (dims != nullptr) operands.push_back(dims);
  }
  for (size_t k = 0; k < c->outputs.size(); ++k) {
    if (c->Out(k).absent) continue;
    c->outputs[k] = c->Fresh(c->Out(k));
    for (const Dims* operand : operands) {
      if (!c->Align(*operand, c->outputs[k])) return false;
    }
  }
  return true;
}

// Finds the dimensions that argument `axes` reduces.
bool TakenTogether(const RuleContext& c, size_t rank, std::vector<bool>* taken) {
  const auto at = static_cast<size_t>(c.facts.axes);
  taken->assign(rank, false);
  std::vector<int64_t> named;
  if (at < c.node.args.size()) {
    named = c.Ints(at);
    if (named.empty() && c.node.args[at].is_number()) return false;
  }
  if (named.empty()) taken->assign(rank, true);
  for (int64_t dim : named) {
    if (dim < 0) dim += static_cast<int64_t>(rank);
    if (dim < 0 || dim >= static_cast<int64_t>(rank)) return rank == 0;
    (*taken)[static_cast<size_t>(dim)] = true;
  }
  return true;
}

bool ReducedRule(RuleContext* c) {
  const auto at = static_cast<size_t>(c->facts.axes);
  if (c->Has(at)) return AlignedRule(c);  // max(a, b)
  if (!c->Has(0)) return false;
  const Dims& input = *c->args[0];
  for (size_t i = 1; i < c->args.size(); ++i) {
    if (c->Has(i) && !c->Align(*c->args[i], input)) return false;
  }
  std::vector<bool> taken;
  if (!TakenTogether(*c, input.size(), &taken)) return false;
  const bool ordered = c->facts.kind == OpKind::kScans || c->facts.place >= 0;
  for (size_t d = 0; d < input.size(); ++d) {
    if (!taken[d] || (c->by_blocks && !ordered)) continue;
    c->table.Restrict(input[d], ordered ? AxisState::kPositional : AxisState::kPermutable);
  }
  for (size_t k = 0; k < c->outputs.size(); ++k) {
    const TensorSpec& out = c->Out(k);
    Dims& dims = c->outputs[k];
    if (out.sizes.size() == input.size()) {  // kept with its size or size 1
      for (size_t d = 0; d < input.size(); ++d) {
        if (out.sizes[d] != c->Spec(0).sizes[d] && out.sizes[d] != 1) return false;
        dims.push_back(out.sizes[d] == 1 ? AxisList{} : input[d]);
      }
      continue;
    }
    for (size_t d = 0; d < input.size(); ++d) {
      if (!taken[d]) dims.push_back(input[d]);
    }
    if (dims.size() != out.sizes.size()) return false;
  }
  return true;
}

bool TrailingRule(RuleContext* c) {
  const size_t self = c->facts.backward ? 1 : 0;
  const auto at = static_cast<size_t>(c->facts.axes);
  if (!c->Has(self)) return false;
  const Dims& input = *c->args[self];
  const size_t inside = c->Ints(at).size();
  if (inside > input.size()) return false;
  const size_t lead = input.size() - inside;
  for (size_t i = 0; i < c->args.size(); ++i) {
    if (i != self && c->Has(i) && !c->Align(*c->args[i], input)) return false;
  }
  for (size_t k = 0; k < c->outputs.size(); ++k) {
    if (c->Out(k).absent) continue;
    Dims& dims = c->outputs[k];
    const bool of_weights = c->facts.backward && k > 0;
    for (size_t d = 0; d < input.size(); ++d) {
      const bool trailing = d >= lead;
      if (of_weights && !trailing) {
        if (c->needed[k]) c->Permutable(input[d]);
        continue;
      }
      if (!of_weights && trailing && c->needed[k]) c->Permutable(input[d]);
      dims.push_back(!of_weights && k > 0 && trailing ? AxisList{} : input[d]);
    }
    if (dims.size() != c->Out(k).sizes.size()) return false;
  }
  for (size_t d = 0; d < inside; ++d) {
    c->literals.push_back({static_cast<int>(at), static_cast<int>(d), input[lead + d]});
  }
  return true;
}

bool GroupsRule(RuleContext* c) {
  const bool backward = c->facts.backward;
  const size_t self = backward ? 1 : 0;
  const int at = c->facts.axes;  // the number of groups; N, C and the places come before
  if (!c->Has(self) || c->args[self]->size() < 2) return false;
  const Dims& input = *c->args[self];
  if (backward && (!c->Has(0) || !c->Align(*c->args[0], input))) return false;
  const int64_t groups = c->Int(static_cast<size_t>(at));
  AxisList group, inside;
  if (groups < 1 || !c->table.Split(input[1], groups, &group, &inside)) return false;
  const Dims statistics = {input[0], group};
  const Dims channels = {input[1]};
  for (size_t i = 0; i < c->args.size(); ++i) {
    if (i == self || (backward && i == 0) || !c->Has(i)) continue;
    const bool of_channels = c->args[i]->size() == 1;
    if (!c->Align(*c->args[i], of_channels ? channels : statistics)) return false;
  }
  c->Permutable(inside);
  for (size_t d = 2; d < input.size(); ++d) c->Permutable(input[d]);
  for (size_t k = 0; k < c->outputs.size(); ++k) {
    if (c->Out(k).absent) continue;
    if (k > 0 && backward && c->needed[k]) c->Permutable(input[0]);
    c->outputs[k] = k == 0 ? input : backward ? channels : statistics;
    if (c->outputs[k].size() != c->Out(k).sizes.size()) return false;
  }
  c->literals.push_back({at - 3, -1, input[0]});
  c->literals.push_back({at - 2, -1, input[1]});
  c->literals.push_back({at, -1, group});
  return true;
}

bool ChannelsRule(RuleContext* c) {
  if (!c->Has(0) || c->args[0]->size() < 2) return false;
  const Dims& input = *c->args[0];
  const Dims channels = {input[1]};
  for (size_t i = 1; i < c->args.size(); ++i) {
    if (!c->Has(i)) continue;
    const bool whole = c->Spec(i).sizes == c->Spec(0).sizes;
    const bool few = c->args[i]->size() == 1 && c->Spec(i).sizes[0] == c->Spec(0).sizes[1];
    if (!whole && !few) return false;
    if (!c->Align(*c->args[i], whole ? input : channels)) return false;
  }
  for (size_t d = 0; d < input.size() && c->facts.needs == OpNeeds::kChannel; ++d) {
    if (d != 1) c->Permutable(input[d]);
  }
  for (size_t k = 0; k < c->outputs.size(); ++k) {
    const TensorSpec& out = c->Out(k);
    if (out.absent) continue;
    if (k == 0 && out.sizes.size() == input.size()) {
      c->outputs[k] = input;
    } else if (out.sizes.size() == 1 && out.sizes[0] == c->Spec(0).sizes[1]) {
      c->outputs[k] = channels;
    } else {
      c->outputs[k] = c->Fresh(out, AxisState::kPositional);
      if (c->needed[k] && out.numel() > 0) return false;
    }
  }
  return true;
}

bool WindowsRule(RuleContext* c) {
  const size_t self = c->facts.backward ? 1 : 0;
  if (!c->Has(self)) return false;
  const Dims& input = *c->args[self];
  const auto windows = static_cast<size_t>(c->facts.windows);
  if (windows > input.size()) return false;
  const size_t lead = input.size() - windows;
  for (size_t i = 0; i < c->args.size(); ++i) {
    if (!c->Has(i)) continue;
    if (c->args[i]->size() != input.size()) return false;
    for (size_t d = 0; d < input.size(); ++d) {
      if (d < lead) {
        c->table.Unite((*c->args[i])[d], input[d]);
      } else {
        c->Positional((*c->args[i])[d]);
      }
    }
  }
  for (size_t k = 0; k < c->outputs.size(); ++k) {
    if (c->Out(k).sizes.size() != input.size()) return false;
    c->outputs[k] = c->Fresh(c->Out(k), AxisState::kPositional);
    for (size_t d = 0; d < lead; ++d) c->outputs[k][d] = input[d];
  }
  return true;
}

bool LabelsRule(RuleContext* c) {
  const size_t self = c->facts.backward ? 1 : 0;
  if (!c->Has(self) || !c->Has(self + 1)) return false;
  const Dims& scores = *c->args[self];
  const Dims& labels = *c->args[self + 1];
  Dims places = scores;
  if (!places.empty()) {
    const size_t classes = places.size() == 1 ? 0 : 1;
    c->Positional(places[classes]);
    places.erase(places.begin() + static_cast<std::ptrdiff_t>(classes));
  }
  if (labels.size() != places.size() || !c->Align(labels, places)) return false;
  if (c->Has(self + 2)) {  // weights of classes
    for (const AxisList& dim : *c->args[self + 2]) c->Positional(dim);
  }
  if (c->facts.backward) {
    const Dims& gradient = *c->args[0];
    if (!gradient.empty() && !c->Align(gradient, places)) return false;
    c->outputs[0] = scores;
    return c->Out(0).sizes.size() == scores.size();
  }
  for (size_t k = 0; k < c->outputs.size(); ++k) {
    c->outputs[k] = c->Fresh(c->Out(k), AxisState::kPositional);
    if (c->Out(k).sizes.size() == places.size() && !places.empty()) {
      c->outputs[k] = places;
    } else if (c->needed[k] && !c->by_blocks) {
      for (const AxisList& dim : places) c->Permutable(dim);
    }
  }
  return true;
}

}  // namespace

int64_t RuleContext::Int(size_t i, int64_t otherwise) const {
  return i < node.args.size() && node.args[i].is_number_integer() ? node.args[i].get<int64_t>()
                                                                  : otherwise;
}

std::vector<int64_t> RuleContext::Ints(size_t i) const {
  if (i >= node.args.size()) return {};
  const Json& argument = node.args[i];
  if (argument.is_number_integer()) return {argument.get<int64_t>()};
  std::vector<int64_t> numbers;
  if (!argument.is_array()) return {};
  for (const Json& number : argument) {
    if (!number.is_number_integer()) return {};
    numbers.push_back(number.get<int64_t>());
  }
  return numbers;
}

RegionAxes::Dims RuleContext::Fresh(const TensorSpec& spec, AxisState state) const {
  Dims dims;
  for (const int64_t size : spec.sizes) dims.push_back(table.New(size, state));
  return dims;
}

bool RuleContext::Align(const Dims& operand, const Dims& to) const {
  if (operand.size() > to.size()) return false;
  const size_t shift = to.size() - operand.size();
  for (size_t d = 0; d < operand.size(); ++d) {
    const int64_t size = table.SizeOf(operand[d]);
    if (size == 1) continue;
    if (size != table.SizeOf(to[shift + d])) return false;
    table.Unite(operand[d], to[shift + d]);
  }
  return true;
}

bool ApplyRule(RuleContext* c) {
  switch (c->facts.dims) {
    case OpDims::kUnknown:
      return false;
    case OpDims::kAligned:
      return AlignedRule(c);
    case OpDims::kReduced:
      return ReducedRule(c);
    case OpDims::kTrailing:
      return TrailingRule(c);
    case OpDims::kGroups:
      return GroupsRule(c);
    case OpDims::kChannels:
      return ChannelsRule(c);
    case OpDims::kWindows:
      return WindowsRule(c);
    case OpDims::kLabels:
      return LabelsRule(c);
    case OpDims::kProduct:
    case OpDims::kConvolution:
    case OpDims::kConvolutionBackward:
    case OpDims::kAttention:
      return ApplyProductRule(c);
    default:
      return ApplyLayoutRule(c);
  }
}

}  // namespace cudaforge
