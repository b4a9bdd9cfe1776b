#include "generators/rows/lower/layout.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "generators/rows/lower/emitter.h"

namespace cudaforge::rows {
namespace {

std::vector<int64_t>& Coefs(DimIndex& dim, bool inner) {
  return inner ? dim.inner_coef : dim.outer_coef;
}

std::vector<Access*> Accesses(Stage& stage) {
  std::vector<Access*> accesses;
  for (Value& value : stage.values) {
    if (value.kind == Value::Kind::kLoad) accesses.push_back(&value.access);
  }
  for (Store& store : stage.stores) accesses.push_back(&store.access);
  return accesses;
}

void ForEachDim(Stage& stage, const std::function<void(DimIndex&)>& visit) {
  for (Access* access : Accesses(stage)) {
    for (DimIndex& dim : access->dims) visit(dim);
  }
}

void ForEachIndexValue(Stage& stage, bool inner, const std::function<void(Value&)>& visit) {
  const Value::Kind kind = inner ? Value::Kind::kInnerIndex : Value::Kind::kOuterIndex;
  for (Value& value : stage.values) {
    if (value.kind == kind) visit(value);
  }
}

// The number of elements in memory that a step of each loop moves.
std::vector<int64_t> Strides(const Access& access, bool inner) {
  const DimIndex& first = access.dims[0];
  std::vector<int64_t> strides((inner ? first.inner_coef : first.outer_coef).size(), 0);
  for (size_t d = 0; d < access.dims.size(); ++d) {
    const DimIndex& dim = access.dims[d];
    const std::vector<int64_t>& coefs = inner ? dim.inner_coef : dim.outer_coef;
    for (size_t i = 0; i < strides.size(); ++i) {
      strides[i] += std::abs(coefs[i]) * access.strides[d] / dim.div;
    }
  }
  return strides;
}

// The access with the most memory traffic, which determines the loop order. Stores win ties.
const Access* MainAccess(const Stage& stage) {
  const Access* best = nullptr;
  int64_t most = 0;
  auto consider = [&](const Access& access) {
    int64_t size = 1;
    const std::vector<int64_t> outer = Strides(access, false), inner = Strides(access, true);
    for (size_t i = 0; i < outer.size(); ++i) size *= outer[i] != 0 ? stage.outer[i] : 1;
    for (size_t i = 0; i < inner.size(); ++i) size *= inner[i] != 0 ? stage.inner[i] : 1;
    if (size > most) {
      most = size;
      best = &access;
    }
  };
  for (const Store& store : stage.stores) consider(store.access);
  for (const Value& value : stage.values) {
    if (value.kind == Value::Kind::kLoad) consider(value.access);
  }
  return best;
}

bool InnerOrderMatters(const Stage& stage) {
  return std::any_of(stage.values.begin(), stage.values.end(), [](const Value& value) {
    return value.kind == Value::Kind::kScan ||
           (value.kind == Value::Kind::kReduce &&
            (value.reduce == ReduceOp::kArgMax || value.reduce == ReduceOp::kArgMin)) ||
           (value.kind == Value::Kind::kInnerIndex && value.dim < 0);
  });
}

void Reorder(Stage& stage, bool inner, const std::vector<size_t>& order) {
  auto permute = [&](std::vector<int64_t>& values) {
    std::vector<int64_t> from = values;
    for (size_t i = 0; i < order.size(); ++i) values[i] = from[order[i]];
  };
  permute(inner ? stage.inner : stage.outer);
  ForEachDim(stage, [&](DimIndex& dim) { permute(Coefs(dim, inner)); });
  ForEachIndexValue(stage, inner, [&](Value& value) {
    if (value.dim < 0) return;
    const auto at = std::find(order.begin(), order.end(), static_cast<size_t>(value.dim));
    value.dim = static_cast<int>(at - order.begin());
  });
}

void SortByMemory(Stage& stage, bool inner) {
  const Access* main = MainAccess(stage);
  if (!main) return;
  std::vector<int64_t> strides = Strides(*main, inner);
  // Loops that the main access does not use are ordered by the first store, or stay outermost.
  std::vector<size_t> order(strides.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const int64_t left = strides[a] == 0 ? INT64_MAX : strides[a];
    const int64_t right = strides[b] == 0 ? INT64_MAX : strides[b];
    return left > right;
  });
  Reorder(stage, inner, order);
}

// Merges loop i + 1 into loop i.
void Merge(Stage& stage, bool inner, size_t i) {
  std::vector<int64_t>& sizes = inner ? stage.inner : stage.outer;
  const auto at = static_cast<std::ptrdiff_t>(i);
  sizes[i] *= sizes[i + 1];
  sizes.erase(sizes.begin() + at + 1);
  ForEachDim(stage, [&](DimIndex& dim) {
    std::vector<int64_t>& coefs = Coefs(dim, inner);
    coefs.erase(coefs.begin() + at);
  });
  ForEachIndexValue(stage, inner, [&](Value& value) {
    if (value.dim > static_cast<int>(i)) --value.dim;
  });
}

void Collapse(Stage& stage, bool inner) {
  std::vector<int64_t>& sizes = inner ? stage.inner : stage.outer;
  for (size_t i = sizes.size(); i-- > 1;) {
    const size_t high = i - 1;
    bool merges = true;
    ForEachDim(stage, [&](DimIndex& dim) {
      const std::vector<int64_t>& coefs = Coefs(dim, inner);
      merges = merges && coefs[high] == coefs[i] * sizes[i];
    });
    ForEachIndexValue(stage, inner, [&](Value& value) {
      merges = merges && value.dim != static_cast<int>(i) && value.dim != static_cast<int>(high);
    });
    if (merges) Merge(stage, inner, high);
  }
}

// Splits outer loop `i` of size n into (n / low, low).
void SplitOuter(Stage& stage, size_t i, int64_t low) {
  const auto at = static_cast<std::ptrdiff_t>(i);
  stage.outer[i] /= low;
  stage.outer.insert(stage.outer.begin() + at + 1, low);
  ForEachDim(stage, [&](DimIndex& dim) {
    const int64_t coef = dim.outer_coef[i];
    dim.outer_coef[i] = coef * low;
    dim.outer_coef.insert(dim.outer_coef.begin() + at + 1, coef);
  });
}

// Moves the last outer loop to the front of the inner loops, or back.
void MoveLoop(Stage& stage, bool to_inner) {
  std::vector<int64_t>& from = to_inner ? stage.outer : stage.inner;
  std::vector<int64_t>& to = to_inner ? stage.inner : stage.outer;
  const int dim_from = to_inner ? static_cast<int>(from.size()) - 1 : 0;
  const int dim_to = to_inner ? 0 : static_cast<int>(to.size());
  to.insert(to.begin() + dim_to, from[static_cast<size_t>(dim_from)]);
  from.erase(from.begin() + dim_from);
  ForEachDim(stage, [&](DimIndex& dim) {
    std::vector<int64_t>& a = Coefs(dim, !to_inner);
    std::vector<int64_t>& b = Coefs(dim, to_inner);
    b.insert(b.begin() + dim_to, a[static_cast<size_t>(dim_from)]);
    a.erase(a.begin() + dim_from);
  });
  for (Value& value : stage.values) {
    if (value.kind == Value::Kind::kInnerIndex) {
      if (to_inner) {
        ++value.dim;
      } else if (value.dim-- == 0) {
        value.kind = Value::Kind::kOuterIndex;
        value.dim = dim_to;
      }
    } else if (value.kind == Value::Kind::kOuterIndex && to_inner && value.dim == dim_from) {
      value.kind = Value::Kind::kInnerIndex;
      value.dim = 0;
    }
  }
}

bool UsesOuterIndex(Stage& stage, size_t i) {
  bool used = false;
  ForEachIndexValue(stage, false,
                    [&](Value& value) { used = used || value.dim == static_cast<int>(i); });
  return used;
}

}  // namespace

void LayoutStage(Stage& stage) {
  SortByMemory(stage, false);
  if (!InnerOrderMatters(stage)) SortByMemory(stage, true);
  Collapse(stage, false);
  Collapse(stage, true);
  AssignSpaces(stage);
}

void ShapeElementwise(Stage& stage, int64_t longest) {
  while (!stage.inner.empty()) MoveLoop(stage, false);
  SortByMemory(stage, false);
  Collapse(stage, false);
  constexpr int64_t kShortest = 32;
  if (!stage.outer.empty()) {
    const int64_t last = stage.outer.back();
    int64_t length = last;
    if (last > longest && !UsesOuterIndex(stage, stage.outer.size() - 1)) {
      while (length > kShortest && (length > longest || last % length != 0)) {
        length = std::min(length - 1, longest);
      }
    }
    if (length >= kShortest) {
      if (length > kShortest && length != last) SplitOuter(stage, stage.outer.size() - 1, length);
      MoveLoop(stage, true);
    }
  }
  AssignSpaces(stage);
}

}  // namespace cudaforge::rows
