// Mapping kColumn: vectors along the last outer dimension, with loops over the inner space around
// them. For reductions over a strided dimension, and for small windows, whose loops are unrolled.
#include <algorithm>

#include "generators/rows/cpu/stage.h"

namespace cudaforge::rows {
namespace {

constexpr int64_t kMaxUnrolled = 16;  // longest inner space that is completely unrolled
constexpr int64_t kFloatSteps = 16;   // float additions before a partial sum is added to a double
constexpr const char* kPlaceType = "int32_t";  // of an argmax's running index

class ColumnWriter {
 public:
  ColumnWriter(const CpuStage& stage, const Schedule& schedule) : stage_(stage) {
    const std::vector<int64_t>& outer = stage.stage().outer;
    columns_ = outer.empty() ? 1 : outer.back();
    tile_ = std::clamp<int64_t>(std::min<int64_t>(schedule.vector, columns_), 1, 1024);
    const std::vector<int64_t>& inner = stage.stage().inner;
    whole_ = stage.row_length() <= kMaxUnrolled;
    unroll_ = std::clamp<int64_t>(std::min<int64_t>(schedule.items, inner.back()), 1, kFloatSteps);
    tiles_ = (columns_ + tile_ - 1) / tile_;
  }

  CpuKernel Write() {
    const size_t rest = stage_.stage().outer.empty() ? 0 : stage_.stage().outer.size() - 1;
    column_ = Cat("o", rest);
    Lines lines;
    lines.Add(
        "extern \"C\" void ", stage_.kernel(),
        "(void* const* buffers, const int64_t*, const double*, int64_t begin, int64_t end) {");
    stage_.AddPrologue(&lines);
    lines.Add("for (int64_t task = begin; task < end; ++task) {");
    lines.Add("[[maybe_unused]] const int64_t rest = task / ", tiles_, ";");
    stage_.AddOuterIndices(&lines, "rest", rest);
    lines.Add("const int64_t from = task % ", tiles_, " * ", tile_, ";");
    if (columns_ % tile_ == 0) {
      lines.Add("constexpr int64_t width = ", tile_, ";");
    } else {
      lines.Add("const int64_t width = ", columns_, " - from < ", tile_, " ? ", columns_,
                " - from : ", tile_, ";");
    }
    lines.Add(
        "auto columns = [&](auto checked, const int64_t c, const int64_t m) "
        "__attribute__((always_inline)) {");
    lines.Add("[[maybe_unused]] constexpr bool kChecked = decltype(checked)::value;");
    AddStage(&lines);
    lines.Add("};");
    AddCalls(&lines);
    lines.Add("}");
    lines.Add("}");
    CpuKernel kernel;
    kernel.text = lines.Text();
    kernel.launch = stage_.MakeLaunch();
    kernel.launch.range = columns_ == 0 ? 0 : stage_.rows() / columns_ * tiles_;
    kernel.launch.grain = std::max<int64_t>(1, kCpuGrainOps / (RowCost(stage_.stage()) * tile_));
    return kernel;
  }

 private:
  std::string RowName(int v) const {
    if (stage_.value(v).kind == Value::Kind::kConst || stage_.IsElement(v))
      return CpuStage::Name(v);
    return "r" + std::to_string(v) + "[j]";
  }

  void AddColumnLoop(Lines* lines, const Lines& body) const {
    lines->Add("#pragma omp simd");
    lines->Add("for (int64_t j = 0; j < m; ++j) {");
    lines->Add("[[maybe_unused]] const int64_t ", column_, " = c + j;");
    lines->Append(body);
    lines->Add("}");
  }

  void AddArray(Lines* lines, const std::string& type, const std::string& name) const {
    lines->Add("alignas(64) ", type, " ", name, "[", tile_, "];");
  }

  // Calls for the columns whose windows are inside every bound, and for the others.
  void AddCalls(Lines* lines) const {
    Lines limits;
    std::string fits = "true";
    bool bounded = false;
    const size_t rest = stage_.stage().outer.empty() ? 0 : stage_.stage().outer.size() - 1;
    std::vector<std::string> names;
    for (size_t d = 0; d < rest; ++d) names.push_back("o" + std::to_string(d));
    for (size_t v = 0; v < stage_.stage().values.size(); ++v) {
      const Value& value = stage_.stage().values[v];
      if (value.kind != Value::Kind::kLoad || !stage_.IsLive(static_cast<int>(v))) continue;
      for (const DimIndex& dim : value.access.dims) {
        if (dim.bound < 0) continue;
        bounded = true;
        std::vector<int64_t> fixed = dim.outer_coef;
        fixed.resize(rest + 1);
        const int64_t step = fixed.back();
        fixed.resize(rest);
        if (dim.div != 1 || step < 0) {
          fits = "false";
          continue;
        }
        int64_t low = dim.offset, high = dim.offset;
        for (size_t d = 0; d < dim.inner_coef.size(); ++d) {
          const int64_t reach = dim.inner_coef[d] * (stage_.stage().inner[d] - 1);
          (reach < 0 ? low : high) += reach;
        }
        const std::string first = Cat("(", LinearText(low, fixed, names), ")");
        const std::string beyond =
            Cat("(", dim.bound - 1, " - (", LinearText(high, fixed, names), "))");
        if (step == 0) {
          fits += Cat(" && ", first, " >= 0 && ", beyond, " >= 0");
        } else {
          limits.Add("lo = cf_max(lo, -cf_floor_div(", first, ", ", step, "));");
          limits.Add("hi = cf_min(hi, cf_floor_div(", beyond, ", ", step, ") + 1);");
        }
      }
    }
    if (!bounded) {
      lines->Add("columns(std::false_type{}, from, width);");
      return;
    }
    lines->Add("int64_t lo = from, hi = from + width;");
    lines->Append(limits);
    lines->Add("if (!(", fits, ") || lo >= hi) lo = hi = from + width;");
    lines->Add("if (hi > lo) columns(std::false_type{}, lo, hi - lo);");
    lines->Add("const int64_t edges[2][2] = {{from, lo - from}, {hi, from + width - hi}};");
    lines->Add("for (const auto& edge : edges) {");
    lines->Add("if (edge[1] > 0) columns(std::true_type{}, edge[0], edge[1]);");
    lines->Add("}");
  }

  void AddStage(Lines* lines) const {
    for (size_t v = 0; v < stage_.stage().values.size(); ++v) {
      const int i = static_cast<int>(v);
      if (!stage_.IsLive(i) || stage_.IsElement(i) || stage_.value(i).kind == Value::Kind::kConst)
        continue;
      AddArray(lines, TypeText(stage_.value(i).type), Cat("r", i));
    }
    for (int s = 0; s <= stage_.sweep_count(); ++s) {
      Lines body;
      for (int v : stage_.RowValuesOf(s)) {
        body.Add(stage_.DefinitionText(v, "kChecked", [&](int u) { return RowName(u); }));
        body.Add(RowName(v), " = ", CpuStage::Name(v), ";");
      }
      if (!body.empty()) AddColumnLoop(lines, body);
      if (s < stage_.sweep_count()) AddSweep(lines, s);
    }
    Lines body;
    for (const Store& store : stage_.stage().stores) {
      if (!stage_.IsElement(store.value)) body.Add(stage_.StoreText(store, RowName(store.value)));
    }
    if (!body.empty()) AddColumnLoop(lines, body);
  }

  // The state of a reduce or scan between inner positions: arrays over the columns, and a local
  // inside.
  struct Carried {
    int v = 0;
    bool scan = false;
    std::string type, identity;  // of the running value
    bool folds = false;          // long floating sums are folded into a wider array periodically
    bool arg = false;            // has an index besides the value
    bool largest = false;
    Type operand = Type::kF32;
  };

  Carried Carry(int v) const {
    const Value& value = stage_.value(v);
    Carried carried;
    carried.v = v;
    carried.scan = stage_.IsScan(v);
    carried.operand = TileType(stage_.stage(), value);
    carried.type = TypeText(carried.operand);
    const bool sum = carried.scan ? value.scan == ScanOp::kSum : value.reduce == ReduceOp::kSum;
    const bool prod = carried.scan ? value.scan == ScanOp::kProd : value.reduce == ReduceOp::kProd;
    const bool floating = carried.operand == Type::kF32 || carried.operand == Type::kF64;
    if (sum || prod) {
      carried.identity = sum ? "0" : "1";
      if (!floating) carried.type = "uint64_t";
      if (floating && (carried.scan || prod)) carried.type = "double";
      carried.folds = sum && floating && !carried.scan && !whole_;
      return carried;
    }
    if (value.reduce == ReduceOp::kAny || value.reduce == ReduceOp::kAll) {
      carried.type = "uint8_t";
      carried.identity = value.reduce == ReduceOp::kAll ? "1" : "0";
      return carried;
    }
    carried.largest = value.reduce == ReduceOp::kMax || value.reduce == ReduceOp::kArgMax;
    carried.arg = value.reduce == ReduceOp::kArgMax || value.reduce == ReduceOp::kArgMin;
    carried.identity =
        std::string(carried.largest ? "cf_lowest<" : "cf_highest<") + carried.type + ">()";
    return carried;
  }

  void AddUpdate(Lines* lines, const Carried& c, const std::string& x) const {
    const std::string s = Cat("s", c.v), n = Cat("n", c.v);
    const Value& value = stage_.value(c.v);
    if (c.arg) {
      // Two selects each, because g++ vectorises them but not a conjunction.
      const std::string place = Cat("place", c.v);
      lines->Add("const int32_t ", place, " = (", x, c.largest ? " <= " : " >= ", s, ") ? ", n,
                 " : int32_t(", stage_.InnerFlat(), ");");
      lines->Add(n, " = ", s, " != ", s, " ? ", n, " : ", place, ";");
    } else if (!c.scan && (value.reduce == ReduceOp::kAny || value.reduce == ReduceOp::kAll)) {
      lines->Add(s, value.reduce == ReduceOp::kAny ? " |= " : " &= ", "uint8_t(", x, " != 0);");
      return;
    }
    const bool sum = c.scan ? value.scan == ScanOp::kSum : value.reduce == ReduceOp::kSum;
    const bool prod = c.scan ? value.scan == ScanOp::kProd : value.reduce == ReduceOp::kProd;
    if (sum || prod) {
      lines->Add(s, sum ? " += " : " *= ", c.type, "(", x, ");");
    } else {
      lines->Add(s, " = ", c.largest ? "cf_max(" : "cf_min(", s, ", ", x, ");");
    }
  }

  void AddSweep(Lines* lines, int s) const {
    std::vector<int> roots, reduces = stage_.ReducesOf(s);
    const std::vector<size_t> stores = stage_.ElementStoresOf(s);
    for (int v : reduces) roots.push_back(stage_.value(v).operands[0]);
    for (size_t i : stores) roots.push_back(stage_.stage().stores[i].value);
    if (roots.empty()) return;
    const std::vector<int> values = Closure(stage_.stage(), roots, stage_.row_values());
    std::vector<Carried> carried;
    for (int v : reduces) carried.push_back(Carry(v));
    for (int v : values) {
      if (stage_.IsScan(v)) carried.push_back(Carry(v));
    }
    lines->Add("{");
    Lines start, load, keep, fold, finish;
    for (const Carried& c : carried) {
      const int n = c.v;
      if (!whole_) {
        AddArray(lines, c.type, Cat("a", n));
        start.Add("a", n, "[j] = ", c.identity, ";");
        if (c.arg) AddArray(lines, kPlaceType, Cat("x", n));
        if (c.arg) start.Add("x", n, "[j] = 0;");
      }
      load.Add(c.type, " s", n, " = ", whole_ ? c.identity : Cat("a", n, "[j]"), ";");
      if (c.arg) load.Add(kPlaceType, " n", n, " = ", whole_ ? "0" : Cat("x", n, "[j]"), ";");
      const std::string store =
          Cat("r", n, "[j] = static_cast<", TypeText(stage_.value(n).type), ">(");
      if (whole_) {
        if (!c.scan) keep.Add(store, c.arg ? "n" : "s", n, ");");
        continue;
      }
      keep.Add("a", n, "[j] = s", n, ";");
      if (c.arg) keep.Add("x", n, "[j] = n", n, ";");
      if (c.folds) AddFold(c, lines, &start, &fold, &finish);
      if (!c.scan && !c.folds) finish.Add(store, c.arg ? "x" : "a", n, "[j]);");
    }
    if (!start.empty()) AddColumnLoop(lines, start);
    AddLoops(lines, values, carried, stores, load, keep, fold);
    if (!fold.empty()) AddColumnLoop(lines, fold);
    if (!finish.empty()) AddColumnLoop(lines, finish);
    lines->Add("}");
  }

  // Adds sums in float to double; sums in double keep their rounding errors.
  void AddFold(const Carried& c, Lines* lines, Lines* start, Lines* fold, Lines* finish) const {
    const int n = c.v;
    AddArray(lines, "double", Cat("d", n));
    start->Add("d", n, "[j] = 0;");
    if (c.operand == Type::kF32) {
      fold->Add("d", n, "[j] += a", n, "[j];");
      finish->Add("r", n, "[j] = float(d", n, "[j]);");
    } else {
      AddArray(lines, "double", Cat("e", n));
      start->Add("e", n, "[j] = 0;");
      fold->Add("cf_two_sum(d", n, "[j], e", n, "[j], a", n, "[j]);");
      finish->Add("r", n, "[j] = d", n, "[j] + e", n, "[j];");
    }
    fold->Add("a", n, "[j] = 0;");
  }

  void AddLoops(Lines* lines, const std::vector<int>& values, const std::vector<Carried>& carried,
                const std::vector<size_t>& stores, const Lines& load, const Lines& keep,
                const Lines& fold) const {
    const std::vector<int64_t>& inner = stage_.stage().inner;
    Lines step;  // one inner position
    for (int v : values) {
      if (!stage_.IsScan(v)) {
        step.Add(stage_.DefinitionText(v, "kChecked", [&](int u) { return RowName(u); }));
        continue;
      }
      const auto c =
          std::find_if(carried.begin(), carried.end(), [&](const Carried& x) { return x.v == v; });
      AddUpdate(&step, *c, RowName(stage_.value(v).operands[0]));
      const std::string type = TypeText(stage_.value(v).type);
      step.Add("const ", type, " ", CpuStage::Name(v), " = static_cast<", type, ">(s", v, ");");
    }
    for (const Carried& c : carried) {
      if (!c.scan) AddUpdate(&step, c, RowName(stage_.value(c.v).operands[0]));
    }
    for (size_t i : stores) {
      const Store& store = stage_.stage().stores[i];
      step.Add(stage_.StoreText(store, RowName(store.value)));
    }
    if (whole_) {
      Lines body = load;
      for (int64_t flat = 0; flat < stage_.row_length(); ++flat) {
        body.Add("{");
        AddPosition(&body, flat);
        body.Append(step);
        body.Add("}");
      }
      body.Append(keep);
      AddColumnLoop(lines, body);
      return;
    }
    if (!fold.empty()) lines->Add("int steps = 0;");
    for (size_t d = 0; d + 1 < inner.size(); ++d) {
      lines->Add("for (int64_t i", d, " = 0; i", d, " < ", inner[d], "; ++i", d, ") {");
    }
    const std::string last = Cat("i", inner.size() - 1);
    const int64_t main = inner.back() / unroll_ * unroll_;
    auto block = [&](int64_t first, int64_t limit, int64_t unroll) {
      if (first >= limit) return;
      lines->Add("for (int64_t at = ", first, "; at < ", limit, "; at += ", unroll, ") {");
      Lines body = load;
      for (int64_t u = 0; u < unroll; ++u) {
        body.Add("{");
        body.Add("[[maybe_unused]] const int64_t ", last, " = at + ", u, ";");
        body.Append(step);
        body.Add("}");
      }
      body.Append(keep);
      AddColumnLoop(lines, body);
      if (!fold.empty()) {
        lines->Add("if ((steps += ", unroll, ") > ", kFloatSteps - unroll_, ") {");
        lines->Add("steps = 0;");
        AddColumnLoop(lines, fold);
        lines->Add("}");
      }
      lines->Add("}");
    };
    block(0, main, unroll_);
    block(main, inner.back(), 1);
    for (size_t d = 0; d + 1 < inner.size(); ++d) lines->Add("}");
  }

  // The inner indices of flattened position `flat`, as constants.
  void AddPosition(Lines* lines, int64_t flat) const {
    const std::vector<int64_t>& inner = stage_.stage().inner;
    for (size_t d = inner.size(); d-- > 0;) {
      lines->Add("[[maybe_unused]] constexpr int64_t i", d, " = ", flat % inner[d], ";");
      flat /= inner[d];
    }
  }

  const CpuStage& stage_;
  int64_t columns_ = 1, tile_ = 1, tiles_ = 1, unroll_ = 1;
  bool whole_ = false;
  std::string column_;
};

}  // namespace

CpuKernel EmitCpuColumns(const CpuStage& stage, const Schedule& schedule) {
  return ColumnWriter(stage, schedule).Write();
}

}  // namespace cudaforge::rows
