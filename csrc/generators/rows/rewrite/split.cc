#include "generators/rows/rewrite/split.h"

#include <algorithm>
#include <limits>
#include <map>

#include "generators/rows/lower/emitter.h"
#include "generators/rows/lower/graph.h"
#include "generators/rows/lower/layout.h"
#include "generators/rows/rewrite/stage_copier.h"

namespace cudaforge::rows {
namespace {

Access Linear(std::vector<int64_t> outer, std::vector<int64_t> inner) {
  DimIndex index;
  index.outer_coef = std::move(outer);
  index.inner_coef = std::move(inner);
  return Access{{std::move(index)}, {1}};
}

Store ToScratch(int buffer, Type type, int value, Access access) {
  Store store;
  store.buffer = {BufferKind::kScratch, buffer};
  store.storage = StorageOf(type);
  store.access = std::move(access);
  store.value = value;
  return store;
}

int AddScratch(Program& program, int64_t elements, Type type) {
  program.scratch_bytes.push_back(elements * DTypeSize(StorageOf(type)));
  return static_cast<int>(program.scratch_bytes.size()) - 1;
}

bool IsReduce(const Value& value) { return value.kind == Value::Kind::kReduce; }
bool IsArg(const Value& value) {
  return IsReduce(value) &&
         (value.reduce == ReduceOp::kArgMax || value.reduce == ReduceOp::kArgMin);
}

bool StoresElements(const Stage& stage) {
  return std::any_of(stage.stores.begin(), stage.stores.end(), [&](const Store& store) {
    return stage.values[static_cast<size_t>(store.value)].space == Space::kElement;
  });
}

// The neutral element of a reduce. For arg reductions: never chosen over a real element.
int Identity(StageCopier& copier, ReduceOp op, Type type) {
  const double infinity = std::numeric_limits<double>::infinity();
  switch (op) {
    case ReduceOp::kProd:
    case ReduceOp::kAll:
      return copier.Number(type, 1, 1);
    case ReduceOp::kMax:
    case ReduceOp::kArgMax:
      return copier.Number(type, -infinity,
                           type == Type::kI32   ? INT32_MIN
                           : type == Type::kI64 ? INT64_MIN
                                                : 0);
    case ReduceOp::kMin:
    case ReduceOp::kArgMin:
      return copier.Number(type, infinity,
                           type == Type::kI32   ? INT32_MAX
                           : type == Type::kI64 ? INT64_MAX
                                                : 1);
    default:
      return copier.Number(type, 0, 0);
  }
}

// Splits inner dimension `dim` of size n into `count` chunks of `length`.
struct Chunks {
  size_t dim = 0;
  int64_t size = 1, count = 1, length = 1;
  bool even() const { return count * length == size; }
};

std::optional<Chunks> ChooseChunks(const Stage& stage, int64_t wanted, bool first_only) {
  Chunks chunks;
  for (size_t d = 1; d < stage.inner.size() && !first_only; ++d) {
    if (stage.inner[chunks.dim] < wanted && stage.inner[d] > stage.inner[chunks.dim])
      chunks.dim = d;
  }
  if (stage.inner.empty()) return std::nullopt;
  chunks.size = stage.inner[chunks.dim];
  chunks.count = std::min(wanted, chunks.size);
  // A nearby divisor avoids bounds.
  for (int64_t count = chunks.count; count * 2 > chunks.count; --count) {
    if (chunks.size % count != 0) continue;
    chunks.count = count;
    break;
  }
  chunks.length = (chunks.size + chunks.count - 1) / chunks.count;
  chunks.count = (chunks.size + chunks.length - 1) / chunks.length;
  if (chunks.count < 2) return std::nullopt;
  return chunks;
}

// One reduction's partial results: its scratch buffer and, for arg reductions, that of the values.
struct Partial {
  int result = -1;
  int value = -1;
};

class Splitter {
 public:
  Splitter(Program program, size_t s, Chunks chunks)
      : program_(std::move(program)), at_(s), from_(program_.stages[s]), chunks_(chunks) {}

  Program Split() {
    Stage partial = MakePartial();
    Stage combine = MakeCombine();
    AssignSpaces(partial);
    AssignSpaces(combine);
    program_.stages[at_] = std::move(partial);
    program_.stages.insert(program_.stages.begin() + static_cast<std::ptrdiff_t>(at_) + 1,
                           std::move(combine));
    return std::move(program_);
  }

 private:
  // The chunk is the outermost loop, so that neighbours in the other outer loops stay neighbours.
  void AdaptAccess(Access& access, bool masked) const {
    for (DimIndex& dim : access.dims) {
      dim.outer_coef.insert(dim.outer_coef.begin(), dim.inner_coef[chunks_.dim] * chunks_.length);
    }
    if (!masked) return;
    DimIndex limit;  // gives no offset, only a bound
    limit.outer_coef.assign(from_.outer.size() + 1, 0);
    limit.inner_coef.assign(from_.inner.size(), 0);
    limit.outer_coef[0] = chunks_.length;
    limit.inner_coef[chunks_.dim] = 1;
    limit.bound = chunks_.size;
    access.dims.push_back(std::move(limit));
    access.strides.push_back(0);
  }

  int64_t Rows() const { return from_.rows(); }

  std::vector<int64_t> RowStrides() const { return ContiguousStrides(from_.outer); }

  Stage MakePartial() {
    Stage to;
    to.outer = from_.outer;
    to.outer.insert(to.outer.begin(), chunks_.count);
    to.inner = from_.inner;
    to.inner[chunks_.dim] = chunks_.length;
    StageCopier* copier_ref = nullptr;
    auto position = [&] {
      StageCopier& copier = *copier_ref;
      const int chunk = copier.Pointwise(
          ScalarOp::kMul, Type::kI64,
          {copier.Loop(Value::Kind::kOuterIndex, 0), copier.Number(Type::kI64, 0, chunks_.length)});
      const int inner = copier.Loop(Value::Kind::kInnerIndex, static_cast<int>(chunks_.dim));
      return copier.Pointwise(ScalarOp::kAdd, Type::kI64, {chunk, inner});
    };
    StageCopier copier(
        from_, to,
        [&](int v) {
          const Value& value = from_.values[static_cast<size_t>(v)];
          const bool split =
              value.kind == Value::Kind::kInnerIndex && value.dim == static_cast<int>(chunks_.dim);
          return split ? position() : -1;
        },
        [&](Value& value) {
          if (value.kind == Value::Kind::kOuterIndex) ++value.dim;
          if (value.kind != Value::Kind::kLoad) return;
          const bool masked = !chunks_.even() && value.space == Space::kElement;
          AdaptAccess(value.access, masked);
          if (masked && value.out_of_bounds < 0) {
            value.out_of_bounds = copier_ref->Number(value.type, 0, 0);
          }
        });
    copier_ref = &copier;
    std::vector<int64_t> outer = RowStrides();
    outer.insert(outer.begin(), Rows());
    const Access row = Linear(outer, std::vector<int64_t>(from_.inner.size(), 0));
    for (size_t v = 0; v < from_.values.size(); ++v) {
      const Value& value = from_.values[v];
      if (!IsReduce(value)) continue;
      int operand = copier.Copy(value.operands[0]);
      const Type type = to.values[static_cast<size_t>(operand)].type;
      if (!chunks_.even()) {
        const int inside = copier.Pointwise(
            ScalarOp::kLt, Type::kBool, {position(), copier.Number(Type::kI64, 0, chunks_.size)});
        const int outside = Identity(copier, value.reduce, type);
        operand = copier.Pointwise(ScalarOp::kWhere, type, {inside, operand, outside});
      }
      Partial& partial = partials_[static_cast<int>(v)];
      int result = copier.Reduce(value.reduce, value.type, operand);
      if (IsArg(value)) {
        const bool largest = value.reduce == ReduceOp::kArgMax;
        partial.value = AddScratch(program_, Rows() * chunks_.count, type);
        const int best = copier.Reduce(largest ? ReduceOp::kMax : ReduceOp::kMin, type, operand);
        to.stores.push_back(ToScratch(partial.value, type, best, row));
        int64_t step = chunks_.length;
        for (size_t d = chunks_.dim + 1; d < from_.inner.size(); ++d) step *= from_.inner[d];
        const int base = copier.Pointwise(
            ScalarOp::kMul, Type::kI64,
            {copier.Loop(Value::Kind::kOuterIndex, 0), copier.Number(Type::kI64, 0, step)});
        result = copier.Pointwise(ScalarOp::kAdd, Type::kI64, {base, result});
      }
      partial.result = AddScratch(program_, Rows() * chunks_.count, value.type);
      to.stores.push_back(ToScratch(partial.result, value.type, result, row));
    }
    return to;
  }

  Stage MakeCombine() {
    Stage to;
    to.outer = from_.outer;
    to.inner = {chunks_.count};
    const Access part = Linear(RowStrides(), {Rows()});
    auto adapt_access = [](Access& access) {
      for (DimIndex& dim : access.dims) dim.inner_coef = {0};
    };
    StageCopier* copier_ref = nullptr;
    auto replace = [&](int v) {
      const Value& value = from_.values[static_cast<size_t>(v)];
      if (!IsReduce(value)) return -1;
      StageCopier& copier = *copier_ref;
      const Partial& partial = partials_.at(v);
      const int parts = copier.Load(partial.result, value.type, part);
      if (!IsArg(value)) return copier.Reduce(value.reduce, value.type, parts);
      const Type type = from_.values[static_cast<size_t>(value.operands[0])].type;
      const int best =
          copier.Reduce(value.reduce, Type::kI64, copier.Load(partial.value, type, part));
      const int chosen = copier.Pointwise(ScalarOp::kEq, Type::kBool,
                                          {copier.Loop(Value::Kind::kInnerIndex, 0), best});
      const int index = copier.Pointwise(ScalarOp::kWhere, Type::kI64,
                                         {chosen, parts, copier.Number(Type::kI64, 0, 0)});
      return copier.Reduce(ReduceOp::kSum, Type::kI64, index);
    };
    StageCopier copier(from_, to, replace, [&](Value& value) {
      if (value.kind == Value::Kind::kLoad) adapt_access(value.access);
    });
    copier_ref = &copier;
    for (Store store : from_.stores) {
      store.value = copier.Copy(store.value);
      adapt_access(store.access);
      to.stores.push_back(std::move(store));
    }
    return to;
  }

  Program program_;
  const size_t at_;
  const Stage from_;
  const Chunks chunks_;
  std::map<int, Partial> partials_;
};

}  // namespace

Result<Program> SplitStage(const Program& program, size_t s, int64_t chunks) {
  CF_CHECK(s < program.stages.size() && chunks > 0);
  const Stage& stage = program.stages[s];
  if (stage.Has(Value::Kind::kScan) || StoresElements(stage) || !stage.run_sums.empty()) {
    return Status::Unsupported("a stage with element results does not split");
  }
  const std::vector<int> sweeps = stage.SweepOfValues();
  bool reduces = false, ordered = false;
  for (size_t v = 0; v < stage.values.size(); ++v) {
    const Value& value = stage.values[v];
    reduces = reduces || IsReduce(value);
    ordered = ordered || IsArg(value);
    if (IsReduce(value) && sweeps[v] > 0) {
      return Status::Unsupported("a stage with several sweeps does not split");
    }
    if (value.kind == Value::Kind::kInnerIndex && value.dim < 0) {
      return Status::Unsupported("a flattened inner index does not split");
    }
  }
  const auto split = ChooseChunks(stage, chunks, ordered);
  if (!reduces || !split) return Status::Unsupported("nothing to split");
  return Splitter(program, s, *split).Split();
}

Result<Program> SeparateSweeps(const Program& program, size_t s) {
  CF_CHECK(s < program.stages.size());
  const Stage from = program.stages[s];
  const std::vector<int> sweeps = from.SweepOfValues();
  int last = -1;
  for (size_t v = 0; v < from.values.size(); ++v) {
    if (IsReduce(from.values[v])) last = std::max(last, sweeps[v]);
  }
  const bool elements = StoresElements(from);
  if (from.Has(Value::Kind::kScan) || !from.run_sums.empty() || last < 0 ||
      (last == 0 && !elements)) {
    return Status::Unsupported("a stage with nothing to separate");
  }
  Program result = program;
  std::map<int, int> buffers;  // by reduction
  std::vector<Stage> stages;
  const Access row =
      Linear(ContiguousStrides(from.outer), std::vector<int64_t>(from.inner.size(), 0));
  for (int k = 0; k <= last + (elements ? 1 : 0); ++k) {
    Stage to;
    to.outer = from.outer;
    to.inner = from.inner;
    StageCopier* copier_ref = nullptr;
    auto replace = [&](int v) {
      const auto found = buffers.find(v);
      if (found == buffers.end()) return -1;
      return copier_ref->Load(found->second, from.values[static_cast<size_t>(v)].type, row);
    };
    StageCopier copier(from, to, replace, [](Value&) {});
    copier_ref = &copier;
    std::map<int, int> fresh;
    for (size_t v = 0; v < from.values.size(); ++v) {
      const Value& value = from.values[v];
      if (!IsReduce(value) || sweeps[v] != k) continue;
      if (k == last && !elements) continue;
      const int buffer = AddScratch(result, from.rows(), value.type);
      to.stores.push_back(ToScratch(buffer, value.type, copier.Copy(static_cast<int>(v)), row));
      fresh[static_cast<int>(v)] = buffer;
    }
    for (Store store : from.stores) {
      const bool element = from.values[static_cast<size_t>(store.value)].space == Space::kElement;
      if (k != (element ? last + 1 : last)) continue;
      store.value = copier.Copy(store.value);
      to.stores.push_back(std::move(store));
    }
    buffers.insert(fresh.begin(), fresh.end());
    AssignSpaces(to);
    constexpr int64_t kElementwiseRow = 1024;
    if (k > last) ShapeElementwise(to, kElementwiseRow);
    stages.push_back(std::move(to));
  }
  const auto at = result.stages.begin() + static_cast<std::ptrdiff_t>(s);
  result.stages.insert(result.stages.erase(at), stages.begin(), stages.end());
  return result;
}

}  // namespace cudaforge::rows
