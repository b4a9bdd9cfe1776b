#include "generators/rows/lower/index.h"

#include <algorithm>

namespace cudaforge::rows {
namespace {

bool AllZero(const std::vector<int64_t>& values) {
  return std::all_of(values.begin(), values.end(), [](int64_t v) { return v == 0; });
}

// index = high * low + rest with 0 <= rest < low, if the coefficients show it.
std::optional<std::pair<DimIndex, DimIndex>> Decompose(const DimIndex& index, int64_t low,
                                                       const Loops& loops) {
  if (!IsPlain(index) || index.offset < 0) return std::nullopt;
  DimIndex high = ZeroIndex(loops), rest = ZeroIndex(loops);
  high.offset = index.offset / low;
  rest.offset = index.offset % low;
  int64_t largest = rest.offset;
  bool fits = true;
  auto take = [&](const std::vector<int64_t>& coefs, const std::vector<int64_t>& sizes,
                  std::vector<int64_t>& to_high, std::vector<int64_t>& to_rest) {
    for (size_t i = 0; i < coefs.size(); ++i) {
      fits = fits && coefs[i] >= 0;
      if (coefs[i] % low == 0) {
        to_high[i] = coefs[i] / low;
      } else {
        to_rest[i] = coefs[i];
        largest += coefs[i] * (sizes[i] - 1);
      }
    }
  };
  take(index.outer_coef, loops.outer, high.outer_coef, rest.outer_coef);
  take(index.inner_coef, loops.inner, high.inner_coef, rest.inner_coef);
  if (!fits || largest >= low) return std::nullopt;
  return std::make_pair(std::move(high), std::move(rest));
}

}  // namespace

DimIndex ZeroIndex(const Loops& loops) {
  DimIndex index;
  index.outer_coef.assign(loops.outer.size(), 0);
  index.inner_coef.assign(loops.inner.size(), 0);
  return index;
}

Index OwnIndex(const std::vector<int64_t>& sizes, const Loops& loops) {
  Index index(sizes.size(), ZeroIndex(loops));
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    (d + 1 == sizes.size() ? index[d].inner_coef[0] : index[d].outer_coef[d]) = 1;
  }
  return index;
}

bool IsPlain(const DimIndex& dim) { return dim.bound < 0 && dim.div == 1; }

bool IsPlain(const Index& index) {
  return std::all_of(index.begin(), index.end(), [](const DimIndex& d) { return IsPlain(d); });
}

bool SameIndex(const DimIndex& a, const DimIndex& b) {
  return a.offset == b.offset && a.div == b.div && a.bound == b.bound &&
         a.outer_coef == b.outer_coef && a.inner_coef == b.inner_coef;
}

bool SameIndex(const Index& a, const Index& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const DimIndex& x, const DimIndex& y) { return SameIndex(x, y); });
}

std::string IndexKey(const Index& index) {
  std::string key;
  for (const DimIndex& dim : index) {
    key += std::to_string(dim.offset) + "/" + std::to_string(dim.div) + "<" +
           std::to_string(dim.bound);
    for (int64_t coef : dim.outer_coef) key += " " + std::to_string(coef);
    key += "|";
    for (int64_t coef : dim.inner_coef) key += " " + std::to_string(coef);
    key += ";";
  }
  return key;
}

void AddScaled(DimIndex& to, const DimIndex& from, int64_t scale) {
  to.offset += from.offset * scale;
  for (size_t i = 0; i < to.outer_coef.size(); ++i) to.outer_coef[i] += from.outer_coef[i] * scale;
  for (size_t i = 0; i < to.inner_coef.size(); ++i) to.inner_coef[i] += from.inner_coef[i] * scale;
}

Index BroadcastIndex(const Index& index, const std::vector<int64_t>& sizes, const Loops& loops) {
  Index result;
  for (size_t d = 0; d < sizes.size(); ++d) {
    const DimIndex& from = index[index.size() - sizes.size() + d];
    result.push_back(sizes[d] == 1 ? ZeroIndex(loops) : from);
  }
  return result;
}

std::optional<Index> OperandIndex(const GraphNode& view, const std::vector<int64_t>& operand_sizes,
                                  const Index& index, const Loops& loops) {
  Index result;
  if (view.kind == GraphNode::Kind::kMerge) {
    const size_t at = static_cast<size_t>(view.dim);
    auto parts = Decompose(index[at], operand_sizes[at + 1], loops);
    if (!parts) return std::nullopt;
    result = index;
    result[at] = std::move(parts->first);
    result.insert(result.begin() + view.dim + 1, std::move(parts->second));
    return result;
  }
  for (const ViewDim& dim : view.view) {
    DimIndex to = ZeroIndex(loops);
    to.offset = dim.offset;
    const DimIndex* bounded = nullptr;
    int used = 0;
    for (size_t k = 0; k < dim.coef.size(); ++k) {
      if (dim.coef[k] == 0) continue;
      ++used;
      if (!IsPlain(index[k])) bounded = &index[k];
      if (bounded && (dim.coef[k] != 1 || dim.offset != 0 || dim.bound >= 0)) return std::nullopt;
      AddScaled(to, index[k], dim.coef[k]);
    }
    if (bounded) {
      if (used != 1) return std::nullopt;
      to = *bounded;
    }
    if (dim.bound >= 0) {
      to.div = dim.div;
      to.bound = dim.bound;
    }
    result.push_back(std::move(to));
  }
  return result;
}

std::optional<Index> ViewIndex(const GraphNode& view, const Index& index, const Loops& loops) {
  if (view.HasBounds() || !IsPlain(index)) return std::nullopt;
  Index result(view.sizes.size(), ZeroIndex(loops));
  if (view.kind == GraphNode::Kind::kMerge) {
    const size_t at = static_cast<size_t>(view.dim);
    result.assign(index.begin(), index.end());
    DimIndex merged = ZeroIndex(loops);
    AddScaled(merged, index[at + 1], 1);
    AddScaled(merged, index[at], view.integer);  // the size of the low part
    result[at] = std::move(merged);
    result.erase(result.begin() + view.dim + 1);
    return result;
  }
  std::vector<bool> known(result.size(), false);
  for (size_t k = 0; k < known.size(); ++k) known[k] = view.sizes[k] == 1;
  for (size_t d = 0; d < view.view.size(); ++d) {
    const ViewDim& dim = view.view[d];
    std::vector<size_t> used;
    for (size_t k = 0; k < dim.coef.size(); ++k) {
      if (dim.coef[k] != 0 && view.sizes[k] != 1) used.push_back(k);
    }
    if (used.empty()) continue;
    if (dim.offset != 0) return std::nullopt;
    if (used.size() == 1 && dim.coef[used[0]] == 1) {
      result[used[0]] = index[d];
      known[used[0]] = true;
    } else if (used.size() == 2 && dim.coef[used[1]] == 1 &&
               dim.coef[used[0]] == view.sizes[used[1]]) {
      auto parts = Decompose(index[d], dim.coef[used[0]], loops);
      if (!parts) return std::nullopt;
      result[used[0]] = std::move(parts->first);
      result[used[1]] = std::move(parts->second);
      known[used[0]] = known[used[1]] = true;
    } else {
      return std::nullopt;
    }
  }
  if (!std::all_of(known.begin(), known.end(), [](bool k) { return k; })) return std::nullopt;
  return result;
}

bool UsesInner(const Index& index) {
  return std::any_of(index.begin(), index.end(),
                     [](const DimIndex& dim) { return !AllZero(dim.inner_coef); });
}

bool Covers(const Index& index, const std::vector<int64_t>& sizes, const Loops& loops,
            bool with_inner) {
  if (!IsPlain(index) || (!with_inner && UsesInner(index))) return false;
  int64_t elements = NumElements(loops.outer);
  if (with_inner) elements *= NumElements(loops.inner);
  if (elements != NumElements(sizes)) return false;
  for (size_t d = 0; d < sizes.size(); ++d) {
    // The loops of a dimension must be digits of its index: coefficients 1, size, size * size', ...
    std::vector<std::pair<int64_t, int64_t>> digits;
    for (size_t i = 0; i < loops.outer.size(); ++i) {
      if (index[d].outer_coef[i] != 0) digits.emplace_back(index[d].outer_coef[i], loops.outer[i]);
    }
    for (size_t i = 0; i < loops.inner.size(); ++i) {
      if (index[d].inner_coef[i] != 0) digits.emplace_back(index[d].inner_coef[i], loops.inner[i]);
    }
    std::sort(digits.begin(), digits.end());
    int64_t place = 1;
    for (const auto& [coef, size] : digits) {
      if (coef != place) return false;
      place *= size;
    }
    if (place != sizes[d] || index[d].offset != 0) return false;
  }
  // With an equal number of positions and full digits in every dimension, no loop can be in two
  // dimensions.
  return true;
}

}  // namespace cudaforge::rows
