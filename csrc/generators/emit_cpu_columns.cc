// Mapping "column": vectors along the last outer dimension, the inner space walked by loops around
// them. For reductions over a strided dimension, and for small windows, whose loops are unrolled.
#include <algorithm>

#include "generators/emit_cpu_stage.h"

namespace cudaforge::rows {
namespace {

constexpr int64_t kMaxUnrolled = 16;  // longest inner space that is unrolled whole
constexpr int64_t kFloatSteps = 16;   // float additions before a partial sum moves to a double

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
    CpuKernel kernel;
    const size_t rest = stage_.stage().outer.empty() ? 0 : stage_.stage().outer.size() - 1;
    column_ = "o" + std::to_string(rest);
    std::string& text = kernel.text;
    text = "extern \"C\" void " + stage_.kernel() +
           "(void* const* buffers, const int64_t*, const double*, int64_t begin, int64_t end) {\n" +
           stage_.Prologue() + "  for (int64_t task = begin; task < end; ++task) {\n" +
           "    [[maybe_unused]] const int64_t rest = task / " + std::to_string(tiles_) + ";\n" +
           stage_.DecodeOuter("rest", rest) + "    const int64_t from = task % " +
           std::to_string(tiles_) + " * " + std::to_string(tile_) + ";\n";
    if (columns_ % tile_ == 0) {
      text += "    constexpr int64_t width = " + std::to_string(tile_) + ";\n";
    } else {
      text += "    const int64_t width = " + std::to_string(columns_) + " - from < " +
              std::to_string(tile_) + " ? " + std::to_string(columns_) +
              " - from : " + std::to_string(tile_) + ";\n";
    }
    text +=
        "    auto columns = [&](auto checked, const int64_t c, const int64_t m) "
        "__attribute__((always_inline)) {\n"
        "      [[maybe_unused]] constexpr bool kChecked = decltype(checked)::value;\n";
    WriteStage(text);
    text += "    };\n";
    WriteCalls(text);
    text += "  }\n}\n";
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

  std::string ColumnLoop(const std::string& body) const {
    return "#pragma omp simd\n      for (int64_t j = 0; j < m; ++j) {\n        [[maybe_unused]] "
           "const int64_t " +
           column_ + " = c + j;\n" + body + "      }\n";
  }

  std::string Array(const std::string& type, int v, const char* prefix) const {
    return "      alignas(64) " + type + " " + prefix + std::to_string(v) + "[" +
           std::to_string(tile_) + "];\n";
  }

  // Calls for the columns whose windows lie inside every bound, and for the others.
  void WriteCalls(std::string& text) const {
    std::string limits, fits = "true";
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
        const std::string first = "(" + LinearText(low, fixed, names) + ")";
        const std::string beyond =
            "(" + std::to_string(dim.bound - 1) + " - (" + LinearText(high, fixed, names) + "))";
        if (step == 0) {
          fits += " && " + first + " >= 0 && " + beyond + " >= 0";
        } else {
          const std::string by = std::to_string(step);
          limits += "    lo = cf_max(lo, -cf_floor_div(" + first + ", " + by + "));\n";
          limits += "    hi = cf_min(hi, cf_floor_div(" + beyond + ", " + by + ") + 1);\n";
        }
      }
    }
    if (!bounded) {
      text += "    columns(std::false_type{}, from, width);\n";
      return;
    }
    text += "    int64_t lo = from, hi = from + width;\n" + limits;
    text += "    if (!(" + fits + ") || lo >= hi) lo = hi = from + width;\n";
    text += "    if (hi > lo) columns(std::false_type{}, lo, hi - lo);\n";
    text += "    const int64_t edges[2][2] = {{from, lo - from}, {hi, from + width - hi}};\n";
    text += "    for (const auto& edge : edges) {\n";
    text += "      if (edge[1] > 0) columns(std::true_type{}, edge[0], edge[1]);\n    }\n";
  }

  void WriteStage(std::string& text) const {
    for (size_t v = 0; v < stage_.stage().values.size(); ++v) {
      const int i = static_cast<int>(v);
      if (!stage_.IsLive(i) || stage_.IsElement(i) || stage_.value(i).kind == Value::Kind::kConst)
        continue;
      text += Array(TypeText(stage_.value(i).type), i, "r");
    }
    for (int s = 0; s <= stage_.sweep_count(); ++s) {
      std::string body;
      for (int v : stage_.RowValuesOf(s)) {
        body +=
            "        " + stage_.DefinitionText(v, "kChecked", [&](int u) { return RowName(u); });
        body += "        " + RowName(v) + " = " + CpuStage::Name(v) + ";\n";
      }
      if (!body.empty()) text += ColumnLoop(body);
      if (s < stage_.sweep_count()) WriteSweep(text, s);
    }
    std::string body;
    for (const Store& store : stage_.stage().stores) {
      if (!stage_.IsElement(store.value))
        body += "        " + stage_.StoreText(store, RowName(store.value));
    }
    if (!body.empty()) text += ColumnLoop(body);
  }

  // How a reduce or scan is kept from one inner position to the next: arrays over the columns, a
  // local inside.
  struct Carried {
    int v = 0;
    bool scan = false;
    std::string type, identity;  // of the running value
    bool folds = false;          // long floating sums move to a wider array now and then
    bool arg = false;            // has a place beside the value
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

  static const char* PlaceType() { return "int32_t"; }

  std::string Update(const Carried& c, const std::string& x) const {
    const std::string s = "s" + std::to_string(c.v), n = "n" + std::to_string(c.v);
    const Value& value = stage_.value(c.v);
    if (c.arg) {
      // Two selects each: g++ vectorises them where it gives up on a conjunction.
      const std::string kept = "(" + x + (c.largest ? " <= " : " >= ") + s + ")";
      const std::string place = "place" + std::to_string(c.v);
      return "const int32_t " + place + " = " + kept + " ? " + n + " : int32_t(" +
             stage_.InnerFlat() + ");\n        " + n + " = " + s + " != " + s + " ? " + n + " : " +
             place + ";\n        " + s + " = " + (c.largest ? "cf_max(" : "cf_min(") + s + ", " +
             x + ");\n";
    }
    if (!c.scan && (value.reduce == ReduceOp::kAny || value.reduce == ReduceOp::kAll)) {
      return s + (value.reduce == ReduceOp::kAny ? " |= " : " &= ") + "uint8_t(" + x + " != 0);\n";
    }
    const bool sum = c.scan ? value.scan == ScanOp::kSum : value.reduce == ReduceOp::kSum;
    const bool prod = c.scan ? value.scan == ScanOp::kProd : value.reduce == ReduceOp::kProd;
    if (sum || prod) return s + (sum ? " += " : " *= ") + c.type + "(" + x + ");\n";
    return s + " = " + (c.largest ? "cf_max(" : "cf_min(") + s + ", " + x + ");\n";
  }

  void WriteSweep(std::string& text, int s) const {
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
    text += "      {\n";
    std::string start, load, keep, fold, finish;
    for (const Carried& c : carried) {
      const std::string n = std::to_string(c.v);
      if (!whole_) {
        text += Array(c.type, c.v, "a");
        start += "        a" + n + "[j] = " + c.identity + ";\n";
        if (c.arg) text += Array(PlaceType(), c.v, "x");
        if (c.arg) start += "        x" + n + "[j] = 0;\n";
      }
      load +=
          "        " + c.type + " s" + n + " = " + (whole_ ? c.identity : "a" + n + "[j]") + ";\n";
      if (c.arg)
        load += std::string("        ") + PlaceType() + " n" + n + " = " +
                (whole_ ? "0" : "x" + n + "[j]") + ";\n";
      const std::string result = c.arg ? "n" + n : "s" + n;
      const std::string store =
          "        r" + n + "[j] = static_cast<" + TypeText(stage_.value(c.v).type) + ">(";
      if (whole_) {
        if (!c.scan) keep += store + result + ");\n";
        continue;
      }
      keep += "        a" + n + "[j] = s" + n + ";\n";
      if (c.arg) keep += "        x" + n + "[j] = n" + n + ";\n";
      if (c.folds) WriteFold(c, text, start, fold, finish);
      if (!c.scan && !c.folds) finish += store + (c.arg ? "x" : "a") + n + "[j]);\n";
    }
    if (!start.empty()) text += ColumnLoop(start);
    WriteLoops(text, values, carried, reduces, stores, load, keep, fold);
    if (!fold.empty()) text += ColumnLoop(fold);
    if (!finish.empty()) text += ColumnLoop(finish);
    text += "      }\n";
  }

  // Sums in float go to double; sums in double keep their rounding errors aside.
  void WriteFold(const Carried& c, std::string& text, std::string& start, std::string& fold,
                 std::string& finish) const {
    const std::string n = std::to_string(c.v);
    text += Array("double", c.v, "d");
    start += "        d" + n + "[j] = 0;\n";
    if (c.operand == Type::kF32) {
      fold += "        d" + n + "[j] += a" + n + "[j];\n";
      finish += "        r" + n + "[j] = float(d" + n + "[j]);\n";
    } else {
      text += Array("double", c.v, "e");
      start += "        e" + n + "[j] = 0;\n";
      fold += "        cf_two_sum(d" + n + "[j], e" + n + "[j], a" + n + "[j]);\n";
      finish += "        r" + n + "[j] = d" + n + "[j] + e" + n + "[j];\n";
    }
    fold += "        a" + n + "[j] = 0;\n";
  }

  void WriteLoops(std::string& text, const std::vector<int>& values,
                  const std::vector<Carried>& carried, const std::vector<int>& reduces,
                  const std::vector<size_t>& stores, const std::string& load,
                  const std::string& keep, const std::string& fold) const {
    const std::vector<int64_t>& inner = stage_.stage().inner;
    std::string step;  // one inner position
    for (int v : values) {
      if (!stage_.IsScan(v)) {
        step +=
            "        " + stage_.DefinitionText(v, "kChecked", [&](int u) { return RowName(u); });
        continue;
      }
      const auto c =
          std::find_if(carried.begin(), carried.end(), [&](const Carried& x) { return x.v == v; });
      step += "        " + Update(*c, RowName(stage_.value(v).operands[0]));
      step += "        const " + TypeText(stage_.value(v).type) + " " + CpuStage::Name(v) +
              " = static_cast<" + TypeText(stage_.value(v).type) + ">(s" + std::to_string(v) +
              ");\n";
    }
    for (const Carried& c : carried) {
      if (!c.scan) step += "        " + Update(c, RowName(stage_.value(c.v).operands[0]));
    }
    for (size_t i : stores) {
      const Store& store = stage_.stage().stores[i];
      step += "        " + stage_.StoreText(store, RowName(store.value));
    }
    if (whole_) {
      std::string body = load;
      for (int64_t flat = 0; flat < stage_.row_length(); ++flat) {
        body += "        {\n" + Position(flat) + step + "        }\n";
      }
      text += ColumnLoop(body + keep);
      return;
    }
    if (!fold.empty()) text += "      int steps = 0;\n";
    for (size_t d = 0; d + 1 < inner.size(); ++d) {
      const std::string i = "i" + std::to_string(d);
      text += "      for (int64_t " + i + " = 0; " + i + " < " + std::to_string(inner[d]) + "; ++" +
              i + ") {\n";
    }
    const std::string last = "i" + std::to_string(inner.size() - 1);
    const int64_t main = inner.back() / unroll_ * unroll_;
    auto block = [&](int64_t first, int64_t limit, int64_t unroll) {
      if (first >= limit) return;
      text += "      for (int64_t at = " + std::to_string(first) + "; at < " +
              std::to_string(limit) + "; at += " + std::to_string(unroll) + ") {\n";
      std::string body = load;
      for (int64_t u = 0; u < unroll; ++u) {
        body += "        {\n        [[maybe_unused]] const int64_t " + last + " = at + " +
                std::to_string(u) + ";\n" + step + "        }\n";
      }
      text += ColumnLoop(body + keep);
      if (!fold.empty()) {
        text += "      if ((steps += " + std::to_string(unroll) + ") > " +
                std::to_string(kFloatSteps - unroll_) + ") {\n      steps = 0;\n" +
                ColumnLoop(fold) + "      }\n";
      }
      text += "      }\n";
    };
    block(0, main, unroll_);
    block(main, inner.back(), 1);
    for (size_t d = 0; d + 1 < inner.size(); ++d) text += "      }\n";
  }

  // The inner indices of flattened position `flat`, as constants.
  std::string Position(int64_t flat) const {
    std::string text;
    const std::vector<int64_t>& inner = stage_.stage().inner;
    for (size_t d = inner.size(); d-- > 0;) {
      text += "        [[maybe_unused]] constexpr int64_t i" + std::to_string(d) + " = " +
              std::to_string(flat % inner[d]) + ";\n";
      flat /= inner[d];
    }
    return text;
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
