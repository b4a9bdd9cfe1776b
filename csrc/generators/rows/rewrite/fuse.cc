#include "generators/rows/rewrite/fuse.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "generators/rows/lower/emitter.h"
#include "generators/rows/rewrite/split.h"
#include "generators/rows/rewrite/stage_copier.h"
#include "generators/rows/stage_loops.h"

namespace cudaforge::rows {
namespace {

size_t At(int index) { return static_cast<size_t>(index); }

bool Writes(const Stage& stage, const BufferRef& buffer) {
  return std::any_of(stage.stores.begin(), stage.stores.end(),
                     [&](const Store& store) { return store.buffer == buffer; }) ||
         std::any_of(stage.run_sums.begin(), stage.run_sums.end(), [&](const RunSum& sum) {
           return buffer == BufferRef{BufferKind::kScratch, sum.scratch};
         });
}

bool ReadsWhatIsWritten(const Stage& reader, const Stage& writer) {
  return std::any_of(reader.values.begin(), reader.values.end(), [&](const Value& value) {
    return value.kind == Value::Kind::kLoad && Writes(writer, value.buffer);
  });
}

// The same element with rows and columns swapped.
Access Transpose(Access access) {
  for (DimIndex& dim : access.dims) std::swap(dim.outer_coef, dim.inner_coef);
  return access;
}

bool SameValue(const Value& a, const Value& b) {
  return a == b && std::signbit(a.number) == std::signbit(b.number);
}

// Replaces values of equal computations by the first one; unused ones are dead. Returns the number
// of dead loads.
int MergeEqualValues(Stage& stage) {
  int loads = 0;
  std::vector<int> first(stage.values.size());
  const auto follow = [&](int& v) {
    if (v >= 0) v = first[At(v)];
  };
  for (size_t v = 0; v < stage.values.size(); ++v) {
    Value& value = stage.values[v];
    for (int& operand : value.operands) follow(operand);
    follow(value.out_of_bounds);
    first[v] = static_cast<int>(v);
    for (size_t u = 0; u < v; ++u) {
      if (first[u] != static_cast<int>(u) || !SameValue(stage.values[u], value)) continue;
      first[v] = static_cast<int>(u);
      loads += value.kind == Value::Kind::kLoad ? 1 : 0;
      break;
    }
  }
  for (Store& store : stage.stores) follow(store.value);
  for (RunSum& sum : stage.run_sums) follow(sum.value);
  return loads;
}

// Returns true if stage `columns` may be computed in two parts: at stage `rows`, and after it.
bool MayMove(const Program& program, size_t rows, size_t columns) {
  for (size_t s = std::min(rows, columns); s <= std::max(rows, columns); ++s) {
    if (s == rows || s == columns) continue;
    const bool conflict = rows < columns
                              ? ReadsWhatIsWritten(program.stages[columns], program.stages[s])
                              : ReadsWhatIsWritten(program.stages[s], program.stages[columns]);
    if (conflict) return false;
  }
  return rows < columns || !ReadsWhatIsWritten(program.stages[rows], program.stages[columns]);
}

// Makes the sums of `columns` (outer: columns, inner: rows) run sums of `rows`. `parts`: the stores
// of partial sums, one for each reduction. kUnsupported: they read different elements.
Status AddRunSums(const Stage& columns, const std::vector<Store>& parts, Stage* rows) {
  const Stage before = *rows;
  int shared = 0;
  bool forwarded = true;  // values that `rows` writes and `columns` reads need no load
  StageCopier copier(
      columns, *rows,
      [&](int v) {
        const Value& value = columns.values[At(v)];
        if (value.kind != Value::Kind::kLoad || !Writes(before, value.buffer)) return -1;
        const Access access = Transpose(value.access);
        for (const Store& store : before.stores) {
          if (store.buffer == value.buffer && store.access == access &&
              store.storage == StorageOf(value.type)) {
            ++shared;
            return store.value;
          }
        }
        forwarded = false;
        return -1;
      },
      [](Value& value) {
        using Kind = Value::Kind;
        value.access = Transpose(std::move(value.access));
        if (value.kind == Kind::kInnerIndex) {
          value.kind = Kind::kOuterIndex;
        } else if (value.kind == Kind::kOuterIndex) {
          value.kind = Kind::kInnerIndex;
        }
      });
  size_t part = 0;
  for (const Value& value : columns.values) {
    if (value.kind != Value::Kind::kReduce) continue;
    rows->run_sums.push_back({parts[part++].buffer.index, copier.Copy(value.operands[0])});
  }
  AssignSpaces(*rows);
  shared += MergeEqualValues(*rows);
  if (!forwarded || shared == 0) return Status::Unsupported("the stages share no elements");
  for (const RunSum& sum : rows->run_sums) {
    if (rows->values[At(sum.value)].space != Space::kElement) {
      return Status::Unsupported("a sum of what is the same along the row");
    }
  }
  return Status::Ok();
}

// Removes stores without a reader, and their memory.
void DropUnreadStores(Program* program) {
  // new index of each buffer that is read; -1: unused
  std::vector<int> place(program->scratch_bytes.size(), -1);
  for (const Stage& reader : program->stages) {
    for (const Value& value : reader.values) {
      const bool scratch = value.buffer.kind == BufferKind::kScratch;
      if (value.kind == Value::Kind::kLoad && scratch) place[At(value.buffer.index)] = 0;
    }
  }
  for (Stage& stage : program->stages) {
    std::erase_if(stage.stores, [&](const Store& store) {
      return store.buffer.kind == BufferKind::kScratch && place[At(store.buffer.index)] < 0;
    });
  }
  std::vector<int64_t> kept;
  for (size_t i = 0; i < place.size(); ++i) {
    if (place[i] < 0) continue;
    place[i] = static_cast<int>(kept.size());
    kept.push_back(program->scratch_bytes[i]);
  }
  program->scratch_bytes = std::move(kept);
  const auto move = [&](BufferRef& buffer) {
    if (buffer.kind == BufferKind::kScratch) buffer.index = place[At(buffer.index)];
  };
  for (Stage& each : program->stages) {
    for (Value& value : each.values) {
      if (value.kind == Value::Kind::kLoad) move(value.buffer);
    }
    for (Store& store : each.stores) move(store.buffer);
    for (RunSum& sum : each.run_sums) sum.scratch = place[At(sum.scratch)];
  }
}

Result<Program> Fuse(Program program, size_t rows_at, size_t columns_at, int64_t runs) {
  Stage rows = Coalesce(program.stages[rows_at]);
  Stage columns = program.stages[columns_at] = Coalesce(program.stages[columns_at]);
  // Values that are equal now get merged into one stage; values that become equal are read by both.
  // SplitStage may duplicate a sum, which is harmless.
  MergeEqualValues(rows);
  MergeEqualValues(columns);
  if (rows.inner != columns.outer || rows.outer != columns.inner || rows.outer.size() != 1) {
    return Status::Unsupported("the stages have other loops");
  }
  const bool sums =
      std::all_of(columns.values.begin(), columns.values.end(), [](const Value& value) {
        return value.kind != Value::Kind::kReduce || value.reduce == ReduceOp::kSum;
      });
  if (!sums || !columns.run_sums.empty() || rows.Has(Value::Kind::kScan) ||
      !MayMove(program, rows_at, columns_at)) {
    return Status::Unsupported("the stages cannot be one");
  }
  constexpr int64_t kFewestRows = 4;  // of a run, because its partial sums are written and read
  runs = std::min(runs, rows.rows() / kFewestRows);
  if (runs < 2) return Status::Unsupported("the rows are few");
  // The partial sums of a run are those of one chunk.
  CF_ASSIGN_OR_RETURN(Program split, SplitStage(program, columns_at, runs));
  const auto at = split.stages.begin() + static_cast<std::ptrdiff_t>(columns_at);
  const int64_t rows_per_run = at->inner[0];
  if (!rows.run_sums.empty() && rows.rows_per_run != rows_per_run) {
    return Status::Unsupported("the stage has other runs");
  }
  rows.rows_per_run = rows_per_run;
  CF_RETURN_IF_ERROR(AddRunSums(columns, at->stores, &rows));
  Stage combine = std::move(*(at + 1));
  program.scratch_bytes = std::move(split.scratch_bytes);
  program.stages[rows_at] = std::move(rows);
  const auto first = program.stages.begin();
  program.stages.erase(first + static_cast<std::ptrdiff_t>(columns_at));
  const size_t combine_at = std::max(rows_at, columns_at);
  program.stages.insert(first + static_cast<std::ptrdiff_t>(combine_at), std::move(combine));
  DropUnreadStores(&program);
  return program;
}

}  // namespace

Result<Program> FuseColumnSums(const Program& program, int64_t runs) {
  CF_CHECK(runs > 0);
  Program result = program;
  bool fused = false;
  size_t columns = 0;
  while (columns < result.stages.size()) {
    bool another = false;  // the stage was replaced
    for (size_t rows = 0; rows < result.stages.size(); ++rows) {
      if (rows == columns) continue;
      Result<Program> next = Fuse(result, rows, columns, runs);
      if (!next.ok()) continue;
      result = *std::move(next);
      fused = true;
      another = columns < rows;
      break;
    }
    if (!another) ++columns;
  }
  if (!fused) return Status::Unsupported("no column sums were fused with rows");
  return result;
}

}  // namespace cudaforge::rows
