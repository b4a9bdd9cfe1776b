#include "generators/rows/cuda/plan.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/integers.h"
#include "generators/rows/stage_loops.h"
#include "generators/rows/text.h"

namespace cudaforge::rows {
namespace {

constexpr int64_t kMaxSharedBytes = int64_t{200} * 1024;
constexpr int64_t kMaxStaticSharedBytes = int64_t{48} * 1024;
constexpr int64_t kNarrowLimit = int64_t{1} << 30;

Status Bad(const std::string& message) { return Status::InvalidArgument("schedule: " + message); }

int64_t StateBytes(const CudaPlan& plan, const Value& value) {
  const Type type = plan.stage.values[static_cast<size_t>(value.operands[0])].type;
  const bool indexed = value.kind == Value::Kind::kReduce &&
                       (value.reduce == ReduceOp::kArgMax || value.reduce == ReduceOp::kArgMin);
  if (indexed) return 16;
  return type == Type::kBool ? 1 : type == Type::kF32 || type == Type::kI32 ? 4 : 8;
}

// The largest offset of any access, in elements, and the number of positions.
int64_t Extent(const Stage& stage, int64_t positions) {
  int64_t extent = positions;
  auto reach = [&](const Access& access) {
    int64_t total = 0;
    for (size_t d = 0; d < access.dims.size(); ++d) {
      const DimIndex& dim = access.dims[d];
      int64_t index = std::abs(dim.offset);
      for (size_t i = 0; i < stage.outer.size(); ++i) {
        index += std::abs(Coefficient(dim.outer_coef, i)) * (stage.outer[i] - 1);
      }
      for (size_t i = 0; i < stage.inner.size(); ++i) {
        index += std::abs(Coefficient(dim.inner_coef, i)) * (stage.inner[i] - 1);
      }
      extent = std::max(extent, index);
      total += index * std::max<int64_t>(1, std::abs(access.strides[d]));
    }
    extent = std::max(extent, total);
  };
  for (const Value& value : stage.values) reach(value.access);
  for (const Store& store : stage.stores) reach(store.access);
  return extent;
}

// SetGeometry for the column engine.
Status SetColumns(const Schedule& schedule, CudaPlan* plan) {
  plan->column = true;
  // A vector is a run of rows along the last outer dimension.
  while (plan->stage.outer.back() % plan->vector != 0) plan->vector /= 2;
  if (schedule.mapping == Mapping::kThread) {
    plan->parts = 1;
  } else {
    const int across = std::max(1, schedule.rows / schedule.vector);
    // A scan handles its parts one by one.
    const int most = plan->stage.Has(Value::Kind::kScan) ? 32 : 128;
    if (schedule.threads % across != 0 || schedule.threads / across > most) {
      return Bad("column: threads / (rows / vector) must be from 1 to 128, with scans to 32");
    }
    plan->parts = schedule.threads / across;
  }
  plan->group = plan->threads / plan->parts;
  plan->rows_per_block = plan->group * plan->vector;
  return Status::Ok();
}

Status SetGeometry(const Schedule& schedule, CudaPlan* plan) {
  plan->threads = schedule.threads;
  plan->vector = schedule.vector;
  plan->unroll = schedule.items;
  if (!IsPowerOfTwo(schedule.threads) || schedule.threads < 32 || schedule.threads > 1024) {
    return Bad("threads must be a power of two from 32 to 1024");
  }
  if (!IsPowerOfTwo(schedule.vector) || schedule.vector > 16)
    return Bad("vector must be 1, 2, 4, 8 or 16");
  if (schedule.items < 1 || schedule.items > 128 || schedule.items * schedule.vector > 512) {
    return Bad("items out of range");
  }
  if (!IsPowerOfTwo(schedule.rows)) return Bad("rows must be a power of two");
  switch (schedule.mapping) {
    case Mapping::kThread:
    case Mapping::kColumn:
      return SetColumns(schedule, plan);
    case Mapping::kWarp:
      if (schedule.rows > schedule.threads) return Bad("warp: more rows than threads");
      plan->rows_per_block = schedule.rows;
      plan->group = schedule.threads / schedule.rows;
      if (plan->group > 32) return Bad("warp: threads / rows must be at most 32");
      return Status::Ok();
    case Mapping::kBlock:
    case Mapping::kLoop:
    case Mapping::kShared:
      if (schedule.rows != 1) {
        return Bad(std::string(MappingName(schedule.mapping)) + ": one row per block");
      }
      plan->group = schedule.threads;
      return Status::Ok();
    case Mapping::kRow:
    case Mapping::kBuffer:
      break;
  }
  return Bad(std::string("no CUDA mapping: ") + MappingName(schedule.mapping));
}

// Returns true if a vector of the plan's width can be read at the start of the buffer.
bool BeginsAligned(const CudaPlan& plan, const Value& value) {
  return std::min<int64_t>(16, plan.vector * DTypeSize(value.storage)) <= value.alignment;
}

// Row starts modulo the vector: offset first, then one coefficient per outer dimension.
std::vector<int64_t> StartModulo(const CudaPlan& plan, const LinearAccess& access) {
  std::vector<int64_t> result = {((access.offset % plan.vector) + plan.vector) % plan.vector};
  for (size_t d = 0; d < plan.stage.outer.size(); ++d) {
    const int64_t c = Coefficient(access.outer, d) % plan.vector;
    result.push_back(plan.stage.outer[d] == 1 ? 0 : (c + plan.vector) % plan.vector);
  }
  return result;
}

bool AllZero(const std::vector<int64_t>& values) {
  return std::all_of(values.begin(), values.end(), [](int64_t v) { return v == 0; });
}

// Decides which element accesses of the row engine can be vectors, and whether positions are
// shifted for them.
class RowVectors {
 public:
  explicit RowVectors(CudaPlan* plan) : plan_(*plan) {}

  void Choose() {
    const Stage& stage = plan_.stage;
    // Without a shift, the first vector of every row starts at position 0.
    for (size_t v = 0; v < stage.values.size(); ++v) Note(stage.values[v], static_cast<int>(v));
    for (size_t s = 0; s < stage.stores.size(); ++s) Note(stage.stores[s], static_cast<int>(s));
    // A run sum needs the same positions in all rows.
    if (plan_.runs()) shift_.clear();
    plan_.shifted = !shift_.empty() && !aligned_;
    for (size_t v = 0; v < stage.values.size(); ++v) {
      const Value& value = stage.values[v];
      plan_.vector_load[v] = value.kind == Value::Kind::kLoad && value.space == Space::kElement &&
                             BeginsAligned(plan_, value) && Fits(value.access);
    }
    for (size_t s = 0; s < stage.stores.size(); ++s) {
      const Store& store = stage.stores[s];
      plan_.vector_store[s] =
          stage.values[static_cast<size_t>(store.value)].space == Space::kElement &&
          Fits(store.access);
    }
  }

 private:
  bool Contiguous(const Access& access) const {
    if (!access.IsLinear()) return false;
    const LinearAccess linear = Linearize(access);
    const size_t last = plan_.stage.inner.size() - 1;
    if (Coefficient(linear.inner, last) != 1) return false;
    if (last > 0 && plan_.stage.inner[last] % plan_.vector != 0) return false;
    for (size_t d = 0; d < last; ++d) {
      if (Coefficient(linear.inner, d) % plan_.vector != 0) return false;
    }
    return true;
  }

  bool Fits(const Access& access) const {
    if (!Contiguous(access)) return false;
    const std::vector<int64_t> start = StartModulo(plan_, Linearize(access));
    return plan_.shifted ? start == shift_ : AllZero(start);
  }

  // An access that varies by row determines the shift; broadcast operands follow.
  void Consider(const Access& access, int value, int store) {
    if (!Contiguous(access)) return;
    const LinearAccess linear = Linearize(access);
    const std::vector<int64_t> start = StartModulo(plan_, linear);
    const bool varies = !AllZero(linear.outer) || plan_.rows == 1;
    if (AllZero(start) && varies) aligned_ = true;
    if (AllZero(start) || !shift_.empty() || plan_.stage.inner.size() > 1) return;
    shift_ = start;
    plan_.shift_value = value;
    plan_.shift_store = store;
  }
  void Note(const Value& value, int v) {
    if (value.kind == Value::Kind::kLoad && value.space == Space::kElement &&
        BeginsAligned(plan_, value)) {
      Consider(value.access, v, -1);
    }
  }
  void Note(const Store& store, int s) {
    if (plan_.stage.values[static_cast<size_t>(store.value)].space == Space::kElement) {
      Consider(store.access, -1, s);
    }
  }

  CudaPlan& plan_;
  std::vector<int64_t> shift_;
  bool aligned_ = false;
};

// Returns true if an access of the column engine covers `vector` neighbouring rows at once.
bool ColumnVector(const CudaPlan& plan, const Access& access, bool element) {
  if (!access.IsLinear()) return false;
  const LinearAccess linear = Linearize(access);
  const size_t last = plan.stage.outer.size() - 1;
  if (Coefficient(linear.outer, last) != 1 || linear.offset % plan.vector != 0) return false;
  for (size_t d = 0; d < last; ++d) {
    if (Coefficient(linear.outer, d) % plan.vector != 0) return false;
  }
  if (!element) return true;
  for (int64_t c : linear.inner) {
    if (c % plan.vector != 0) return false;
  }
  return true;
}

void ChooseColumnVectors(CudaPlan* plan) {
  const Stage& stage = plan->stage;
  for (size_t v = 0; v < stage.values.size(); ++v) {
    const Value& value = stage.values[v];
    if (value.kind != Value::Kind::kLoad || value.space == Space::kConst) continue;
    plan->vector_load[v] = BeginsAligned(*plan, value) &&
                           ColumnVector(*plan, value.access, value.space == Space::kElement);
  }
  for (size_t s = 0; s < stage.stores.size(); ++s) {
    const bool element =
        stage.values[static_cast<size_t>(stage.stores[s].value)].space == Space::kElement;
    plan->vector_store[s] = ColumnVector(*plan, stage.stores[s].access, element);
  }
}

void SetPasses(CudaPlan* plan) {
  const Stage& stage = plan->stage;
  plan->pass.assign(stage.values.size(), 0);
  for (size_t v = 0; v < stage.values.size(); ++v) {
    const Value& value = stage.values[v];
    int pass = 0;
    for (int operand : value.operands)
      pass = std::max(pass, plan->pass[static_cast<size_t>(operand)]);
    plan->pass[v] = value.kind == Value::Kind::kReduce ? pass + 1 : pass;
  }
  plan->passes = 1;
  for (int v : LiveValues(stage)) {
    const Value& value = stage.values[static_cast<size_t>(v)];
    const int pass = plan->pass[static_cast<size_t>(v)];
    if (value.kind == Value::Kind::kReduce) plan->passes = std::max(plan->passes, pass);
    if (value.space == Space::kElement) plan->passes = std::max(plan->passes, pass + 1);
  }
}

// Chooses values that several passes keep: loads (staged or kept) and, in registers, expensive
// ones.
void SetKept(CudaPlan* plan) {
  const Stage& stage = plan->stage;
  constexpr int kNever = 1 << 20;
  std::vector<int> first(stage.values.size(), kNever), last(stage.values.size(), -1);
  auto use = [&](int v, int from, int to) {
    const size_t i = static_cast<size_t>(v);
    first[i] = std::min(first[i], from);
    last[i] = std::max(last[i], to);
  };
  for (const Store& store : stage.stores) {
    const int pass = plan->pass[static_cast<size_t>(store.value)];
    use(store.value, pass, pass);
  }
  for (const RunSum& sum : stage.run_sums) {
    const int pass = plan->pass[static_cast<size_t>(sum.value)];
    use(sum.value, pass, pass);
  }
  for (size_t v = stage.values.size(); v-- > 0;) {
    const Value& value = stage.values[v];
    if (last[v] < 0) continue;
    const bool dear = value.kind == Value::Kind::kLoad || value.kind == Value::Kind::kScan ||
                      (value.kind == Value::Kind::kPointwise && ScalarFactsOf(value.op).keep);
    if (value.space == Space::kElement && dear && last[v] > first[v]) {
      if (plan->keep) plan->kept[v] = true;
      if (plan->staged && value.kind == Value::Kind::kLoad) plan->stage_in_shared[v] = true;
    }
    // Operands of a kept value are needed only where it is computed; others as late as the value
    // itself.
    const int reduced = plan->pass[v] - 1;
    for (int operand : value.operands) {
      if (value.kind == Value::Kind::kReduce) {
        use(operand, reduced, reduced);
      } else {
        use(operand, first[v], plan->kept[v] ? first[v] : last[v]);
      }
    }
  }
}

Status CheckRuns(const CudaPlan& plan) {
  if (!plan.runs()) return Status::Ok();
  if (plan.column || !plan.keep) return Bad("sums over runs of rows need rows in registers");
  return plan.stage.Has(Value::Kind::kScan) ? Bad("sums over runs of rows cannot contain a scan")
                                            : Status::Ok();
}

Status CheckShared(const CudaPlan& plan) {
  int64_t bytes = 0;
  for (const Value& value : plan.stage.values) {
    if (value.kind != Value::Kind::kScan && value.kind != Value::Kind::kReduce) continue;
    bytes += StateBytes(plan, value) * plan.shared_states(value);
  }
  if (bytes > kMaxStaticSharedBytes) return Bad("too much shared memory");
  if (plan.shared_bytes() > kMaxSharedBytes) return Bad("shared: the row does not fit");
  return Status::Ok();
}

}  // namespace

int64_t CudaPlan::shared_states(const Value& value) const {
  if (value.kind == Value::Kind::kScan) {
    if (column) return parts > 1 ? int64_t{threads} * vector * 2 : 0;
    return crosses_warps() ? int64_t{unroll} * 64 : 0;
  }
  if (!crosses_warps()) return 0;
  // Two rows' states alternate: some threads may still read one while others write the next.
  return (column ? int64_t{threads / parts_per_warp()} * vector : 32) * (runs() ? 2 : 1);
}

int64_t CudaPlan::shared_bytes() const {
  int64_t bytes = 0;
  for (size_t v = 0; v < stage_in_shared.size(); ++v) {
    if (!stage_in_shared[v]) continue;
    const int64_t size = stage.values[v].access.IsLinear() ? DTypeSize(stage.values[v].storage) : 8;
    bytes += (chunks * unroll * group * vector * size + 15) / 16 * 16;
  }
  return bytes;
}

Result<CudaPlan> MakeCudaPlan(const Stage& stage, const Schedule& schedule) {
  CudaPlan plan;
  plan.stage = Coalesce(stage);
  if (plan.stage.outer.empty()) plan.stage.outer = {1};
  if (plan.stage.inner.empty()) plan.stage.inner = {1};
  plan.rows = plan.stage.rows();
  plan.length = plan.stage.row_length();
  if (plan.rows < 1 || plan.length < 1) return Bad("the stage has no elements");
  CF_RETURN_IF_ERROR(SetGeometry(schedule, &plan));
  const size_t count = plan.stage.values.size();
  plan.vector_load.assign(count, false);
  plan.kept.assign(count, false);
  plan.stage_in_shared.assign(count, false);
  plan.vector_store.assign(plan.stage.stores.size(), false);
  if (plan.vector > 1) {
    if (plan.column) {
      ChooseColumnVectors(&plan);
    } else {
      RowVectors(&plan).Choose();
    }
  }
  const int64_t positions = plan.length + (plan.shifted ? plan.vector - 1 : 0);
  const int64_t chunk =
      int64_t{plan.unroll} * (plan.column ? plan.parts : plan.group * plan.vector);
  plan.chunks = (positions + chunk - 1) / chunk;
  plan.full = !plan.shifted && plan.length == plan.chunks * chunk;
  const bool registers = schedule.mapping != Mapping::kLoop && schedule.mapping != Mapping::kShared;
  plan.keep = registers && plan.chunks == 1;
  plan.staged = schedule.mapping == Mapping::kShared;
  if (schedule.mapping == Mapping::kBlock && plan.chunks != 1)
    return Bad("block: the row does not fit in registers");
  // Positions go beyond the end of the last chunk, so the limit is below 2^31.
  plan.wide = Extent(plan.stage, plan.rows * plan.length) + plan.chunks * chunk >= kNarrowLimit ||
              plan.blocks() * plan.rows_per_block * plan.stage.rows_per_run >= kNarrowLimit;
  if (plan.blocks() >= (int64_t{1} << 31)) return Bad("too many blocks");
  SetPasses(&plan);
  SetKept(&plan);
  CF_RETURN_IF_ERROR(CheckRuns(plan));
  CF_RETURN_IF_ERROR(CheckShared(plan));
  return plan;
}

}  // namespace cudaforge::rows
