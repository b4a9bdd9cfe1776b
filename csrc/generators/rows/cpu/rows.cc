// Mappings kRow and kBuffer: one row after the other, in tiles along its innermost dimension. A
// vectorised loop writes a tile's element values to small arrays, from which accumulators and scans
// read.
#include <algorithm>

#include "generators/rows/cpu/prelude.h"
#include "generators/rows/cpu/stage.h"

namespace cudaforge::rows {
namespace {

constexpr int64_t kTile = kCpuTile;
constexpr int64_t kShortDim = 256;       // shorter innermost dimensions share a tile
constexpr int64_t kTaskElements = 8192;  // per task, if the elements of a stage are independent

// Values that are cheaper to recompute than to store.
bool IsCheap(const CpuStage& stage, int v) {
  int64_t cost = 0;
  for (int u : Closure(stage.stage(), {v}, stage.row_values())) {
    const Value& value = stage.value(u);
    if (value.kind == Value::Kind::kScan) return false;
    if (value.kind == Value::Kind::kPointwise) cost += ScalarFactsOf(value.op).cpu_cost;
  }
  return cost < 4;
}

class RowWriter {
 public:
  RowWriter(const CpuStage& stage, const Schedule& schedule) : stage_(stage) {
    if (schedule.mapping == Mapping::kBuffer) buffered_ = BufferedValues(stage);
    const std::vector<int64_t>& inner = stage.stage().inner;
    last_ = inner.back();
    leading_ = last_ == 0 ? 0 : stage.row_length() / last_;
    bool carried = false;
    for (size_t v = 0; v < stage.stage().values.size(); ++v) {
      const int i = static_cast<int>(v);
      if (stage.IsLive(i) && (stage.IsReduce(i) || stage.IsScan(i))) carried = true;
    }
    // Without a reduce or scan, a task may be part of a row.
    parts_ = carried || leading_ != 1
                 ? 1
                 : std::max<int64_t>(1, (last_ + kTaskElements - 1) / kTaskElements);
  }

  CpuKernel Write() {
    Lines lines;
    lines.Add(
        "extern \"C\" void ", stage_.kernel(),
        "(void* const* buffers, const int64_t*, const double*, int64_t begin, int64_t end) {");
    stage_.AddPrologue(&lines);
    lines.Add("for (int64_t task = begin; task < end; ++task) {");
    if (parts_ == 1) {
      lines.Add("[[maybe_unused]] const int64_t row = task;");
    } else {
      lines.Add("[[maybe_unused]] const int64_t row = task / ", parts_, ";");
      lines.Add("const int64_t from = task % ", parts_, " * ", kTaskElements, ";");
      lines.Add("const int64_t to = from + ", kTaskElements, " < ", last_, " ? from + ",
                kTaskElements, " : ", last_, ";");
    }
    stage_.AddOuterIndices(&lines, "row", stage_.stage().outer.size());
    for (int v : buffered_) {
      lines.Add("alignas(64) ", TypeText(stage_.value(v).type), " b", v, "[",
                std::max<int64_t>(1, stage_.row_length()), "];");
    }
    for (int s = 0; s <= stage_.sweep_count(); ++s) {
      for (int v : stage_.RowValuesOf(s)) {
        lines.Add(stage_.DefinitionText(v, "true", CpuStage::Name));
      }
      if (s < stage_.sweep_count()) AddSweep(&lines, s);
    }
    for (const Store& store : stage_.stage().stores) {
      if (stage_.IsElement(store.value)) continue;
      lines.Add(stage_.StoreText(store, CpuStage::Name(store.value)));
    }
    lines.Add("}");
    lines.Add("}");
    CpuKernel kernel;
    kernel.text = lines.Text();
    kernel.launch = stage_.MakeLaunch();
    kernel.launch.range = stage_.rows() * parts_;
    kernel.launch.grain = std::max<int64_t>(1, kCpuGrainOps * parts_ / RowCost(stage_.stage()));
    return kernel;
  }

 private:
  // The work of one sweep, in phases: a scan's results are only known after its whole tile.
  struct Sweep {
    std::vector<int> reduces, scans;
    std::vector<size_t> stores;
    std::vector<int> kept;   // values to write to their row buffers
    std::set<int> known;     // values that need no computation
    std::vector<int> phase;  // of each value
    int phases = 1;
    bool grouped = false;  // several short inner rows form a tile
  };

  Sweep Plan(int s) {
    Sweep sweep;
    sweep.reduces = stage_.ReducesOf(s);
    sweep.stores = stage_.ElementStoresOf(s);
    sweep.known = stage_.row_values();
    for (int v : buffered_) {
      if (stage_.Sweep(v) < s) sweep.known.insert(v);
      if (stage_.Sweep(v) == s) sweep.kept.push_back(v);
    }
    std::vector<int> roots = sweep.kept;
    for (int v : sweep.reduces) roots.push_back(stage_.value(v).operands[0]);
    for (size_t i : sweep.stores) roots.push_back(stage_.stage().stores[i].value);
    sweep.phase.assign(stage_.stage().values.size(), 0);
    for (int v : Closure(stage_.stage(), roots, sweep.known)) {
      int& phase = sweep.phase[static_cast<size_t>(v)];
      for (int operand : stage_.value(v).operands) {
        if (sweep.known.count(operand) != 0) continue;
        phase = std::max(
            phase, sweep.phase[static_cast<size_t>(operand)] + (stage_.IsScan(operand) ? 1 : 0));
      }
      if (stage_.IsScan(v)) sweep.scans.push_back(v);
      sweep.phases = std::max(sweep.phases, phase + 1 + (stage_.IsScan(v) ? 1 : 0));
    }
    sweep.grouped = sweep.scans.empty() && leading_ > 1 && last_ < kShortDim;
    return sweep;
  }

  int UsePhase(const Sweep& sweep, int v) const {
    if (sweep.known.count(v) != 0) return 0;
    return sweep.phase[static_cast<size_t>(v)] + (stage_.IsScan(v) ? 1 : 0);
  }

  // A reduce can read a tile directly from the input or a row buffer.
  std::string DirectTile(const Sweep& sweep, int reduce) const {
    const int operand = stage_.value(reduce).operands[0];
    const Value& value = stage_.value(operand);
    if (TileType(stage_.stage(), stage_.value(reduce)) != value.type || sweep.grouped) return "";
    if (buffered_.count(operand) != 0) return "b" + std::to_string(operand) + " + flat";
    if (stage_.IsScan(operand) && sweep.known.count(operand) == 0)
      return "t" + std::to_string(operand);
    const bool same = (value.storage == DType::kFloat32 && value.type == Type::kF32) ||
                      (value.storage == DType::kFloat64 && value.type == Type::kF64) ||
                      (value.storage == DType::kInt32 && value.type == Type::kI32) ||
                      (value.storage == DType::kInt64 && value.type == Type::kI64);
    if (value.kind != Value::Kind::kLoad || !same || !value.access.IsLinear()) return "";
    const LinearAccess access = Linearize(value.access);
    if (access.inner.size() != stage_.stage().inner.size() || access.inner.back() != 1) return "";
    return "p" + std::to_string(stage_.BufferIndex(value.buffer)) + " + " +
           stage_.IndexText(value.access);
  }

  std::string ElementName(const Sweep& sweep, int v) const {
    if (stage_.IsElement(v)) {
      if (sweep.known.count(v) != 0) return "b" + std::to_string(v) + "[flat + j]";
      if (stage_.IsScan(v)) return "t" + std::to_string(v) + "[j]";
    }
    return CpuStage::Name(v);
  }

  void AddSweep(Lines* lines, int s) {
    const Sweep sweep = Plan(s);
    if (sweep.reduces.empty() && sweep.stores.empty() && sweep.kept.empty()) return;
    const std::vector<int64_t>& inner = stage_.stage().inner;
    for (int v : sweep.reduces) {
      lines->Add(AccumulatorText(stage_.stage(), stage_.value(v)), " a", v, ";");
    }
    lines->Add("{");
    for (int v : sweep.scans) {
      const char* scan = stage_.value(v).scan == ScanOp::kSum ? "CfScanSum<" : "CfScanProd<";
      lines->Add(scan, TypeText(stage_.value(v).type), "> a", v, ";");
    }
    std::set<int> tiles(sweep.scans.begin(), sweep.scans.end());
    for (int v : sweep.reduces) {
      if (DirectTile(sweep, v).empty()) tiles.insert(v);
    }
    for (int v : tiles) {
      lines->Add("alignas(64) ", TypeText(TileType(stage_.stage(), stage_.value(v))), " t", v, "[",
                 kTile, "];");
    }
    if (sweep.grouped) lines->Add("int64_t fill = 0, first = 0;");
    const std::string from = parts_ == 1 ? "0" : "from",
                      to = parts_ == 1 ? std::to_string(last_) : "to";
    for (size_t d = 0; d + 1 < inner.size(); ++d) {
      lines->Add("for (int64_t i", d, " = 0; i", d, " < ", inner[d], "; ++i", d, ")");
    }
    const std::string last = Cat("i", inner.size() - 1);
    // Inner loops redefine the index of the innermost dimension; here it is the tile's first.
    const std::string tile = last + "_";
    lines->Add("for (int64_t ", tile, " = ", from, "; ", tile, " < ", to, "; ", tile, " += ", kTile,
               ") {");
    lines->Add("const int64_t m = ", to, " - ", tile, " < ", kTile, " ? ", to, " - ", tile, " : ",
               kTile, ";");
    lines->Add("const int64_t ", last, " = ", tile, ";");
    lines->Add("[[maybe_unused]] const int64_t flat = ", stage_.InnerFlat(), ";");
    if (sweep.grouped) {
      lines->Add("if (fill + m > ", kTile, ") {");
      AddFlush(lines, sweep);
      lines->Add("first += fill;");
      lines->Add("fill = 0;");
      lines->Add("}");
    }
    for (int phase = 0; phase < sweep.phases; ++phase) AddPhase(lines, sweep, phase, last, tiles);
    if (sweep.grouped) lines->Add("fill += m;");
    lines->Add("}");
    if (sweep.grouped) AddFlush(lines, sweep);
    lines->Add("}");
    for (int v : sweep.reduces) {
      const std::string type = TypeText(stage_.value(v).type);
      lines->Add("const ", type, " ", CpuStage::Name(v), " = static_cast<", type, ">(a", v,
                 ".Result());");
    }
  }

  void AddFlush(Lines* lines, const Sweep& sweep) const {
    for (int v : sweep.reduces) lines->Add("a", v, ".Tile(t", v, ", fill, first);");
  }

  void AddPhase(Lines* lines, const Sweep& sweep, int phase, const std::string& last,
                const std::set<int>& tiles) const {
    std::vector<int> roots;
    Lines writes;
    const std::string at = sweep.grouped ? "[fill + j]" : "[j]";
    auto put = [&](int v, const std::string& place, Type type) {
      if (UsePhase(sweep, v) != phase) return;
      roots.push_back(v);
      writes.Add(place, " = static_cast<", TypeText(type), ">(", ElementName(sweep, v), ");");
    };
    for (int v : sweep.kept) put(v, Cat("b", v, "[flat + j]"), stage_.value(v).type);
    for (int v : tiles) {
      put(stage_.value(v).operands[0], Cat("t", v, at), TileType(stage_.stage(), stage_.value(v)));
    }
    for (size_t i : sweep.stores) {
      const Store& store = stage_.stage().stores[i];
      if (UsePhase(sweep, store.value) != phase) continue;
      roots.push_back(store.value);
      writes.Add(stage_.StoreText(store, ElementName(sweep, store.value)));
    }
    if (!writes.empty()) {
      std::set<int> known = sweep.known;
      known.insert(sweep.scans.begin(), sweep.scans.end());
      lines->Add("#pragma omp simd");
      lines->Add("for (int64_t j = 0; j < m; ++j) {");
      lines->Add("[[maybe_unused]] const int64_t ", last, " = ", last, "_ + j;");
      for (int v : Closure(stage_.stage(), roots, known)) {
        lines->Add(stage_.DefinitionText(v, "true", [&](int u) { return ElementName(sweep, u); }));
      }
      lines->Append(writes);
      lines->Add("}");
    }
    for (int v : sweep.scans) {
      if (sweep.phase[static_cast<size_t>(v)] != phase) continue;
      lines->Add("a", v, ".Tile(t", v, ", m);");
    }
    if (sweep.grouped) return;
    for (int v : sweep.reduces) {
      if (UsePhase(sweep, stage_.value(v).operands[0]) != phase) continue;
      const std::string direct = DirectTile(sweep, v);
      lines->Add("a", v, ".Tile(", direct.empty() ? Cat("t", v) : direct, ", m, flat);");
    }
  }

  const CpuStage& stage_;
  std::set<int> buffered_;
  int64_t last_ = 1;
  int64_t leading_ = 1;
  int64_t parts_ = 1;
};

}  // namespace

std::set<int> BufferedValues(const CpuStage& stage) {
  std::set<int> result;
  int64_t bytes = 0;
  for (int s = 1; s < stage.sweep_count(); ++s) {
    std::vector<int> roots;
    for (int v : stage.ReducesOf(s)) roots.push_back(stage.value(v).operands[0]);
    for (size_t i : stage.ElementStoresOf(s)) roots.push_back(stage.stage().stores[i].value);
    auto consider = [&](int v) {
      if (!stage.IsElement(v) || stage.Sweep(v) >= s || IsCheap(stage, v)) return;
      if (result.insert(v).second) bytes += 8 * stage.row_length();
    };
    for (int v : Closure(stage.stage(), roots, stage.row_values())) {
      if (stage.Sweep(v) != s) continue;
      for (int operand : stage.value(v).operands) consider(operand);
    }
    for (int root : roots) consider(root);
  }
  if (bytes > int64_t{256} * 1024) result.clear();
  return result;
}

CpuKernel EmitCpuRows(const CpuStage& stage, const Schedule& schedule) {
  return RowWriter(stage, schedule).Write();
}

}  // namespace cudaforge::rows
