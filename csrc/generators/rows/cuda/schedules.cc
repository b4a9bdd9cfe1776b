// Chooses schedules to try for one stage on a GPU. These are guesses: timings decide.
#include <algorithm>
#include <string>

#include "base/integers.h"
#include "generators/rows/cuda/plan.h"
#include "generators/rows/emit.h"
#include "generators/rows/stage_loops.h"

namespace cudaforge::rows {
namespace {

constexpr size_t kMaxSchedules = 12;
constexpr int64_t kMaxUnrolledLength = 64;
// Per thread, over all kept loads, counted as 32-bit registers.
constexpr int64_t kMaxKeptElements = 64;

int FloorPowerOfTwo(int64_t x) {
  int p = 1;
  while (int64_t{p} * 2 <= x && p < (1 << 20)) p *= 2;
  return p;
}

// The properties of a stage that determine the mapping.
struct Shape {
  int64_t rows = 1, length = 1;
  int row_votes = 0,
      column_votes = 0;   // element accesses contiguous along the inner or the outer space
  int vector = 1;         // elements in 16 bytes of the smallest storage accessed
  int64_t registers = 1;  // 32-bit registers per element for all element loads
  int64_t last_outer = 1;
  bool windows = false;  // loads with bounds
};

Shape Describe(const Stage& stage) {
  Shape shape;
  shape.rows = stage.rows();
  shape.length = stage.row_length();
  shape.last_outer = stage.outer.empty() ? 1 : stage.outer.back();
  int64_t smallest = 16, largest = 1;
  auto look = [&](const Access& access, DType storage) {
    smallest = std::min(smallest, DTypeSize(storage));
    largest = std::max(largest, DTypeSize(storage));
    int64_t inner = 0, outer = 0;
    for (size_t d = 0; d < access.dims.size(); ++d) {
      const DimIndex& dim = access.dims[d];
      if (!stage.inner.empty() && Coefficient(dim.inner_coef, stage.inner.size() - 1) != 0 &&
          access.strides[d] != 0) {
        inner = Coefficient(dim.inner_coef, stage.inner.size() - 1) * access.strides[d];
      }
      if (!stage.outer.empty() && Coefficient(dim.outer_coef, stage.outer.size() - 1) != 0 &&
          access.strides[d] != 0) {
        outer = Coefficient(dim.outer_coef, stage.outer.size() - 1) * access.strides[d];
      }
    }
    // With a short stride along the outer space, neighbouring threads still share cache lines.
    if (inner == 1 && outer != 1) ++shape.row_votes;
    if (outer == 1 || (inner != 1 && outer != 0 && outer <= 4)) ++shape.column_votes;
  };
  shape.registers = 0;
  for (int v : LiveValues(stage)) {
    const Value& value = stage.values[static_cast<size_t>(v)];
    if (value.space != Space::kElement || value.kind != Value::Kind::kLoad) continue;
    look(value.access, value.storage);
    shape.windows |= !value.access.IsLinear();
    // Operands shared by all rows stay in the caches, so they are not kept.
    bool varies = false;
    for (const DimIndex& dim : value.access.dims) {
      for (int64_t c : dim.outer_coef) varies |= c != 0;
    }
    if (varies) shape.registers += DTypeSize(value.storage) > 4 ? 2 : 1;
  }
  for (const Store& store : stage.stores) {
    if (stage.values[static_cast<size_t>(store.value)].space == Space::kElement)
      look(store.access, store.storage);
  }
  shape.registers += std::ssize(stage.run_sums);
  shape.registers = std::max<int64_t>(1, shape.registers);
  // At most two 16-byte accesses a thread if storage types differ in size.
  shape.vector = static_cast<int>(std::max<int64_t>(1, std::min(16 / smallest, 32 / largest)));
  return shape;
}

class Chooser {
 public:
  Chooser(const Stage& stage, const DeviceArch& arch)
      : stage_(Coalesce(stage)), shape_(Describe(stage_)) {
    CF_CHECK(arch.multiprocessors.has_value()) << "the search looks at that";
    processors_ = *arch.multiprocessors;
    // If unknown, what every device has.
    resident_ = processors_ * arch.max_threads_per_multiprocessor.value_or(1024);
    shared_ = std::min(int64_t{200} * 1024,
                       arch.shared_bytes_per_block_optin.value_or(int64_t{48} * 1024));
  }

  std::vector<Schedule> Choose() {
    if (shape_.windows && shape_.length <= kMaxUnrolledLength) {
      for (int vector : {2, 1, 4}) Thread(vector, 256);
      Thread(1, 128);
      Warps({1});
    } else if (shape_.column_votes > shape_.row_votes && shape_.rows > 1) {
      Columns();
    } else if (shape_.length <= 4 || shape_.row_votes == 0) {
      Thread(1, 256);
      Thread(1, 128);
      Warps({1});
      Blocks({1});
    } else {
      if (shape_.length <= 8) Thread(1, 256);
      Rows();
      if (shape_.length <= 32) Thread(1, 256);
    }
    // A schedule for every stage without run sums, so that there is always a first guess.
    if (stage_.run_sums.empty()) {
      if (result_.size() == kMaxSchedules) result_.pop_back();
      Add({Mapping::kLoop, 256, 1, 4, 1});
    }
    return std::move(result_);
  }

 private:
  void Add(const Schedule& schedule) {
    if (result_.size() >= kMaxSchedules) return;
    if (std::find(result_.begin(), result_.end(), schedule) != result_.end()) return;
    const Result<CudaPlan> plan = MakeCudaPlan(stage_, schedule);
    if (!plan.ok() || plan->shared_bytes() > shared_) return;
    if (schedule.vector > 1 && !Vectorises(*plan)) return;
    result_.push_back(schedule);
  }
  static bool Vectorises(const CudaPlan& plan) {
    return std::count(plan.vector_load.begin(), plan.vector_load.end(), true) +
               std::count(plan.vector_store.begin(), plan.vector_store.end(), true) >
           0;
  }
  int64_t Budget() const { return std::max<int64_t>(1, kMaxKeptElements / shape_.registers); }

  void Thread(int vector, int threads) {
    if (shape_.length > kMaxUnrolledLength || shape_.length * vector * shape_.registers > 128)
      return;
    Add({Mapping::kThread, threads, vector, static_cast<int>(shape_.length), 1});
  }

  // As many items as cover the row in registers; one more if rows are shifted.
  void AddCovering(Mapping mapping, int threads, int group, int vector, int64_t most) {
    const int rows = threads / group;
    for (int more : {0, 1}) {
      const int64_t items = CeilDiv(shape_.length, int64_t{group} * vector) + more;
      if (items * vector > most) return;
      const Schedule schedule{mapping, threads, vector, static_cast<int>(items), rows};
      const Result<CudaPlan> plan = MakeCudaPlan(stage_, schedule);
      if (!plan.ok() || plan->chunks != 1) continue;
      Add(schedule);
      return;
    }
  }

  // Groups of at most a warp: at least 8 threads, vectors that just cover the row. If there are
  // more groups than the device holds at once, also smaller ones, whose threads load slightly
  // more.
  void Warps(const std::vector<int>& vectors) {
    constexpr int kLittle = 16;  // elements
    for (int vector : vectors) {
      int group = std::clamp(FloorPowerOfTwo(std::max<int64_t>(1, shape_.length / vector)), 8, 32);
      for (bool more = true; more; group /= 2) {
        for (int threads : {256, 128}) {
          AddCovering(Mapping::kWarp, threads, group, vector, Budget());
        }
        more = vector == shape_.vector && shape_.rows * group > resident_ &&
               shape_.length * 2 <= int64_t{group} * kLittle && group > 4;
      }
    }
  }

  // The row in one block's registers: small blocks if there are enough rows for every
  // multiprocessor.
  void Blocks(const std::vector<int>& vectors) {
    const bool many = shape_.rows >= processors_ * 2;
    const std::vector<int> sizes = !stage_.run_sums.empty() ? std::vector<int>{256, 512, 128, 1024}
                                   : many                   ? std::vector<int>{128, 256, 512, 1024}
                                                            : std::vector<int>{1024, 512, 256};
    for (int vector : vectors) {
      for (int threads : sizes) {
        if (shape_.length * 2 <= int64_t{threads} * vector) continue;
        // At most half of the budget, and few enough for all threads of the block.
        AddCovering(Mapping::kBlock, threads, threads, vector,
                    threads == 1024 ? Budget() / 4 : std::max<int64_t>(Budget() / 2, vector));
      }
    }
  }

  void Sweeps(Mapping mapping) {
    for (int threads : {512, 1024, 256}) {
      const int vector = Vectors()[0];
      if (int64_t{threads} * vector > shape_.length && threads > 256) continue;
      const int64_t items = std::clamp<int64_t>(shape_.length / (int64_t{threads} * vector), 1,
                                                shape_.registers > 2 ? 2 : 4);
      Add({mapping, threads, vector, FloorPowerOfTwo(items), 1});
    }
  }

  void Rows() {
    const std::vector<int> all = Vectors();
    const std::vector<int> wide(all.begin(), all.begin() + std::min<ptrdiff_t>(2, std::ssize(all)));
    const bool few = shape_.rows < processors_;
    const bool warps = shape_.length <= 2048 && !(few && shape_.length >= 512);
    const bool staged = Passes() > 1 && shape_.length > 2048;
    if (warps) Warps({wide[0]});
    Blocks({wide[0]});
    if (staged) Sweeps(Mapping::kShared);
    if (!warps && result_.size() < 4) Sweeps(Mapping::kLoop);
    if (warps) Warps(wide);
    Blocks(wide);
    Sweeps(Mapping::kLoop);
    if (warps) Warps({1});
    Blocks({1});
  }

  // One sweep that only produces row values.
  bool OnlyReduces() const {
    return Passes() == 1 &&
           std::all_of(stage_.stores.begin(), stage_.stores.end(), [&](const Store& store) {
             return stage_.values[static_cast<size_t>(store.value)].space != Space::kElement;
           });
  }

  int Passes() const {
    const Result<CudaPlan> plan = MakeCudaPlan(stage_, {Mapping::kLoop, 256, 1, 1, 1});
    return plan.ok() ? plan->passes : 1;
  }

  void Columns() {
    std::vector<int> vectors = Vectors();
    // A vector of rows must divide the last outer dimension.
    vectors.erase(std::remove_if(vectors.begin(), vectors.end(),
                                 [&](int v) { return shape_.last_outer % v != 0; }),
                  vectors.end());
    for (int vector : vectors) {
      // Wide vectors only if enough threads remain to fill the device.
      if (shape_.rows / vector < processors_ * 64 && vector > 2 && shape_.length < 64) continue;
      if (shape_.length <= 16) Thread(vector, 256);
    }
    // Narrower vectors first if wide ones leave a third of the processors idle.
    std::stable_partition(vectors.begin(), vectors.end(), [&](int vector) {
      return CeilDiv(shape_.rows, int64_t{8} * vector) * 3 >= processors_ * 2;
    });
    for (int vector : vectors) {
      const bool narrow = shape_.rows < processors_ * 32 * vector;
      for (int across : narrow ? std::vector<int>{8, 4, 16} : std::vector<int>{32, 16, 64}) {
        if (across > 16 && int64_t{across} * vector > 2 * shape_.rows) continue;
        if (across < 8 && across * vector < 8) continue;  // less than a memory sector
        for (bool half : {false, true}) {
          if (!half || narrow) Column(vector, across, half);
        }
      }
    }
    for (int vector : vectors) {
      if (shape_.length <= kMaxUnrolledLength) Thread(vector, 128);
    }
    Add({Mapping::kColumn, 256, 1, 4, 32});
  }

  // `across` threads side by side. As many parts of the inner space as fill the device, or half of
  // them: smaller blocks, two per processor.
  void Column(int vector, int across, bool half) {
    const int64_t most = OnlyReduces() ? 128 : 32;
    const int64_t columns = CeilDiv(shape_.rows, vector);
    int64_t parts =
        FloorPowerOfTwo(std::clamp<int64_t>(resident_ / std::max<int64_t>(1, columns), 4, most));
    parts = std::min<int64_t>(parts, FloorPowerOfTwo(shape_.length));
    parts = std::max<int64_t>(parts, CeilDiv(32, across));
    const int threads = static_cast<int>(std::min<int64_t>(1024, across * parts)) / (half ? 2 : 1);
    if (half && threads < 256) return;
    const int64_t per_part = CeilDiv(shape_.length, threads / across);
    const int rows = across * vector;
    const int64_t budget = std::max<int64_t>(1, Budget() / 2 / vector);
    if (per_part <= budget)
      Add({Mapping::kColumn, threads, vector, static_cast<int>(per_part), rows});
    const int64_t loads = std::max<int64_t>(1, (half ? 32 : 16) / vector);
    Add({Mapping::kColumn, threads, vector,
         FloorPowerOfTwo(std::clamp<int64_t>(per_part, 1, loads)), rows});
  }

  // Widest first; 1 last.
  std::vector<int> Vectors() const {
    std::vector<int> vectors;
    for (int v = shape_.vector; v >= 1; v /= 2) vectors.push_back(v);
    return vectors;
  }

  Stage stage_;
  Shape shape_;
  int64_t processors_ = 0;
  int64_t resident_ = 0;  // threads that the device holds at once
  int64_t shared_ = 0;
  std::vector<Schedule> result_;
};

}  // namespace

std::vector<Schedule> CudaSchedules(const Stage& stage, const DeviceArch& arch) {
  return Chooser(stage, arch).Choose();
}

}  // namespace cudaforge::rows
