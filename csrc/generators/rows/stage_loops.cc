#include "generators/rows/stage_loops.h"

#include <algorithm>

namespace cudaforge::rows {
namespace {

// The outer or inner side of every access of a stage, for Coalesce.
class Side {
 public:
  Side(Stage& stage, bool outer)
      : stage_(stage), outer_(outer), sizes_(outer ? stage.outer : stage.inner) {}

  void DropOnes() {
    for (size_t d = sizes_.size(); d-- > 0;) {
      if (sizes_[d] == 1) Erase(d);
    }
  }

  void Merge() {
    for (size_t d = sizes_.size(); d-- > 1;) {
      if (!CanMerge(d - 1)) continue;
      const int64_t size = sizes_[d - 1] * sizes_[d];
      Erase(d - 1);
      sizes_[d - 1] = size;
    }
  }

 private:
  template <typename F>
  void EachDim(F f) {
    for (Value& v : stage_.values) {
      for (DimIndex& dim : v.access.dims) f(outer_ ? dim.outer_coef : dim.inner_coef);
    }
    for (Store& s : stage_.stores) {
      for (DimIndex& dim : s.access.dims) f(outer_ ? dim.outer_coef : dim.inner_coef);
    }
  }

  bool IsIndex(const Value& v) const {
    return v.kind == (outer_ ? Value::Kind::kOuterIndex : Value::Kind::kInnerIndex);
  }

  // Returns true if every access walks dimensions d and d + 1 as one.
  bool CanMerge(size_t d) {
    for (const Value& v : stage_.values) {
      if (IsIndex(v) && (v.dim == static_cast<int>(d) || v.dim == static_cast<int>(d) + 1)) {
        return false;
      }
    }
    bool ok = true;
    EachDim([&](std::vector<int64_t>& c) {
      if (!c.empty() && c[d] != c[d + 1] * sizes_[d + 1]) ok = false;
    });
    return ok;
  }

  void Erase(size_t d) {
    EachDim([&](std::vector<int64_t>& c) {
      if (!c.empty()) c.erase(c.begin() + static_cast<int64_t>(d));
    });
    for (Value& v : stage_.values) {
      if (!IsIndex(v)) continue;
      if (v.dim == static_cast<int>(d)) {  // d has size 1, so its index is 0
        v.kind = Value::Kind::kConst;
        v.integer = 0;
        v.number = 0;
      } else if (v.dim > static_cast<int>(d)) {
        --v.dim;
      }
    }
    sizes_.erase(sizes_.begin() + static_cast<int64_t>(d));
  }

  Stage& stage_;
  bool outer_;
  std::vector<int64_t>& sizes_;
};

}  // namespace

std::vector<int> Closure(const Stage& stage, const std::vector<int>& roots,
                         const std::set<int>& known) {
  std::vector<bool> needed(stage.values.size());
  for (int root : roots) {
    if (known.count(root) == 0) needed[static_cast<size_t>(root)] = true;
  }
  std::vector<int> result;
  for (size_t v = stage.values.size(); v-- > 0;) {
    if (!needed[v]) continue;
    result.push_back(static_cast<int>(v));
    const Value& value = stage.values[v];
    for (int operand : value.operands) {
      if (known.count(operand) == 0) needed[static_cast<size_t>(operand)] = true;
    }
    if (value.out_of_bounds >= 0 && known.count(value.out_of_bounds) == 0) {
      needed[static_cast<size_t>(value.out_of_bounds)] = true;
    }
  }
  std::reverse(result.begin(), result.end());
  return result;
}

std::vector<int> LiveValues(const Stage& stage) {
  std::vector<int> roots;
  for (const Store& store : stage.stores) roots.push_back(store.value);
  for (const RunSum& sum : stage.run_sums) roots.push_back(sum.value);
  return Closure(stage, roots, {});
}

Stage Coalesce(const Stage& stage) {
  Stage result = stage;
  for (bool outer : {true, false}) {
    Side side(result, outer);
    side.DropOnes();
    side.Merge();
  }
  return result;
}

int64_t RowCost(const Stage& stage) {
  int64_t elements = 1;
  for (int64_t size : stage.inner) elements *= size;
  int64_t per_element = 0, per_row = 0;
  for (int v : LiveValues(stage)) {
    const Value& value = stage.values[static_cast<size_t>(v)];
    int64_t cost = 1;
    if (value.kind == Value::Kind::kConst) cost = 0;
    if (value.kind == Value::Kind::kPointwise) cost = ScalarFactsOf(value.op).cost;
    // The result of a reduce or scan is per row or element; its work is always per element.
    const bool element = value.space == Space::kElement || value.kind == Value::Kind::kReduce;
    (element ? per_element : per_row) += cost;
  }
  return std::max<int64_t>(1, per_row + per_element * elements);
}

}  // namespace cudaforge::rows
