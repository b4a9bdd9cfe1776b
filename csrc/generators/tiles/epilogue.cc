#include "generators/tiles/epilogue.h"

#include <algorithm>
#include <limits>
#include <set>

#include "generators/rows/cuda/writer.h"
#include "generators/rows/emit.h"
#include "generators/rows/stage_loops.h"
#include "generators/rows/text.h"
#include "generators/tiles/device_texts.h"

namespace cudaforge::tiles {
namespace {

using rows::BoundedAccessText;
using rows::BufferRef;
using rows::BufferText;
using rows::LinearAccess;
using rows::Space;
using rows::StorageText;
using rows::TypeText;
using rows::Value;
using Kind = rows::Value::Kind;

constexpr int64_t kOutputAlignment = 16;  // bytes

class EpilogueWriter {
 public:
  explicit EpilogueWriter(const Contraction& contraction)
      : stage_(contraction.epilogue),
        further_(contraction.further_epilogues),
        columns_(contraction.n),
        together_(contraction.is_together()) {
    for (int v : rows::LiveValues(stage_)) live_.insert(v);
    if (contraction.has_batch) outer_ = {"o0", "o1"};
    row_ = outer_.back();
    rounds_ = std::ranges::all_of(stage_.stores, [](const rows::Store& store) {
      return store.storage == DType::kFloat16 || store.storage == DType::kBFloat16;
    });
  }

  EpilogueText Write() {
    AddBuffers(stage_);
    const std::vector<std::string> members = members_;
    for (const rows::Stage& further : further_) AddBuffers(further);
    result_.apart = !further_.empty();
    if (result_.apart) result_.arguments = "{" + result_.arguments + "}";
    if (rounds_) result_.text = DeviceText({"tiles/half_math.cuh"});
    lines_.Add("struct Epilogue {");
    for (const std::string& member : members) lines_.Add(member, ";");
    lines_.Add("using One = Epilogue;");
    lines_.Add("__device__ __forceinline__ const Epilogue& Of(int) const { return *this; }");
    WriteInputs();
    WriteMatricesRead();
    WriteOutputs();
    const std::string given =
        Cat(", const float (&sums)", together_ ? "[2][V]" : "[V]", ", const Inputs<V>& in");
    Open("Outputs<V>", "Compute", given);
    if (rounds_) {
      for (const char* name :
           {"cf_exp", "cf_sigmoid", "cf_tanh", "cf_erf", "cf_gelu", "cf_gelu_tanh"})
        lines_.Add("using half_math::", name, ";");
    }
    for (int v : live_) {
      value(v).space == Space::kElement ? ElementValue(v) : RowValue(v);
    }
    lines_.Add("Outputs<V> out;");
    for (size_t s = 0; s < stage_.stores.size(); ++s) {
      const rows::Store& store = stage_.stores[s];
      Each(Cat("out.s", s, ".v[k] = CfStore<", StorageText(store.storage), ">::From(",
               Ref(store.value), ");"));
    }
    lines_.Add("return out;");
    lines_.Add("}");
    Open("void", "Put", ", const Outputs<V>& out");
    for (size_t s = 0; s < stage_.stores.size(); ++s) PutElements(s);
    lines_.Add("}");
    Open("void", "Store", given);
    lines_.Add("Put<V>(batch, row, column, Compute<V>(batch, row, column, sums, in));");
    lines_.Add("}");
    lines_.Add("};");
    if (result_.apart) WriteChoice();
    result_.text += lines_.Text();
    return std::move(result_);
  }

 private:
  void WriteChoice() {
    lines_.Add("struct Epilogues {");
    lines_.Add("using One = Epilogue;");
    lines_.Add("Epilogue each[", 1 + further_.size(), "];");
    lines_.Add("__device__ __forceinline__ Epilogue Of(int product) const {");
    lines_.Add("Epilogue chosen = each[0];");
    for (size_t p = 1; p <= further_.size(); ++p)
      lines_.Add("if (product == ", p, ") chosen = each[", p, "];");
    lines_.Add("return chosen;");
    lines_.Add("}");
    lines_.Add("};");
  }

  // Opens a function of a place.
  void Open(const std::string& result, const std::string& name, const std::string& more,
            const char* parameter = "int V") {
    lines_.Add("template <", parameter, ">");
    lines_.Add("__device__ __forceinline__ ", result, " ", name, "(int batch, int row, int column",
               more, ") const {");
    lines_.Add("using I = int64_t;");
    if (outer_.size() == 2) lines_.Add("const I o0 = batch;");
    lines_.Add("const I ", row_, " = row, c0 = column;");
  }

  bool IsLoadedAhead(int v) const {
    return value(v).kind == Kind::kLoad && value(v).access.IsLinear();
  }

  // Halves of a row and its neighbours' that may be loaded 16 bytes at a time.
  bool IsWide(int v) const {
    const Value& x = value(v);
    return IsOfMatrix(v) && DTypeSize(x.storage) == 2 &&
           Widest(x.access, x.storage, x.alignment) >= 8;
  }

  // Of a matrix: each place has its own, next to that of the next column.
  bool IsOfMatrix(int v) const {
    if (!IsLoadedAhead(v) || !element(v)) return false;
    const LinearAccess linear = rows::Linearize(value(v).access);
    return !linear.inner.empty() && linear.inner[0] == 1 &&
           std::ranges::any_of(linear.outer, [](int64_t c) { return c != 0; });
  }

  void WriteMatricesRead() {
    lines_.Add("enum : int { kMatricesRead = ",
               std::ranges::count_if(live_, [&](int v) { return IsOfMatrix(v); }), " };");
    Open("void", "VisitMatricesRead", ", Visit visit", "class Visit");
    for (int v : live_) {
      if (!IsOfMatrix(v)) continue;
      const std::string offset = Offset(value(v).access).first;
      lines_.Add("visit(", BufferText(value(v).buffer), " + (", offset, "));");
    }
    lines_.Add("}");
  }

  // The loads of all values that need no condition.
  void WriteInputs() {
    for (const bool wide : {false, true}) {
      const char* type = wide ? "Wide" : "Thin";
      lines_.Add("template <int V>");
      lines_.Add("struct ", type, " {");
      for (int v : live_) {
        if (!IsLoadedAhead(v) || IsWide(v) != wide) continue;
        lines_.Add("CfVec<", StorageText(value(v).storage), ", ", element(v) ? "V" : "1", "> l", v,
                   ";");
      }
      lines_.Add("};");
      Open(Cat(type, "<V>"), Cat("Load", type), "");
      lines_.Add(type, "<V> in;");
      for (int v : live_) {
        if (IsLoadedAhead(v) && IsWide(v) == wide) LoadAhead(v);
      }
      lines_.Add("return in;");
      lines_.Add("}");
    }
    lines_.Add("enum : int { kWide = ",
               std::ranges::count_if(live_, [&](int v) { return IsWide(v); }), " };");
    lines_.Add("template <int V>");
    lines_.Add("struct Inputs {");
    lines_.Add("Thin<V> thin;");
    lines_.Add("Wide<V> wide;");
    lines_.Add("};");
    Open("Inputs<V>", "Load", "");
    lines_.Add("return {LoadThin<V>(batch, row, column), LoadWide<V>(batch, row, column)};");
    lines_.Add("}");
  }

  std::string Loaded(int v) const { return Cat(IsWide(v) ? "in.wide.l" : "in.thin.l", v, ".v"); }

  void LoadAhead(int v) {
    const Value& x = value(v);
    const auto [offset, step] = Offset(x.access);
    const std::string from = Cat(BufferText(x.buffer), " + (", offset);
    const std::string target = Cat("in.l", v);
    if (!element(v)) return lines_.Add(target, " = cf_load_vector<1>(", from, "));");
    const int widest = Widest(x.access, x.storage, x.alignment);
    if (widest > 1) {
      lines_.Add("if constexpr (V <= ", widest, ") {");
      lines_.Add(target, " = cf_load_vector<V>(", from, "));");
      lines_.Add("} else {");
    }
    Each(Cat(target, ".v[k] = cf_load_vector<1>(", from, " + (I)k * ", step, ")).v[0];"));
    if (widest > 1) lines_.Add("}");
  }

  const Value& value(int v) const { return stage_.values[static_cast<size_t>(v)]; }
  bool element(int v) const { return value(v).space == Space::kElement; }
  std::string Ref(int v) const { return element(v) ? Cat("v", v, "[k]") : Cat("v", v); }

  // Those of an epilogue that is like the first: in the same order. Its kernel has each once.
  void AddBuffers(const rows::Stage& stage) {
    std::vector<BufferRef> added;
    std::string arguments;
    const auto add = [&](const BufferRef& buffer, DType storage, bool written) {
      if (std::ranges::find(added, buffer) != added.end()) return;
      added.push_back(buffer);
      const std::string name = BufferText(buffer);
      arguments += (arguments.empty() ? "" : ", ") + name;
      auto& buffers = result_.buffers;
      if (std::ranges::find(buffers, buffer) != buffers.end()) return;
      const std::string member =
          Cat(written ? "" : "const ", StorageText(storage), "* __restrict__ ", name);
      result_.parameters += (buffers.empty() ? "" : ", ") + member;
      members_.push_back(member);
      buffers.push_back(buffer);
    };
    for (int v : live_) {
      const Value& x = stage.values[static_cast<size_t>(v)];
      if (x.kind == Kind::kLoad) add(x.buffer, x.storage, false);
    }
    for (const rows::Store& store : stage.stores) add(store.buffer, store.storage, true);
    result_.arguments += result_.arguments.empty() ? arguments : "}, {" + arguments;
  }

  std::string Expression(int v) const {
    if (const int x = rounds_ ? TimesSigmoidOf(v) : -1; x >= 0)
      return Cat(Ref(value(v).operands[0]), " * cf_sigmoid(", Ref(x), ")");
    std::vector<std::string> operands;
    for (int operand : value(v).operands) operands.push_back(Ref(operand));
    return rows::PointwiseText(stage_, v, operands);
  }

  bool Is(int v, rows::ScalarOp op) const {
    return value(v).kind == Kind::kPointwise && value(v).op == op &&
           value(v).type == rows::Type::kF32;
  }

  // The x of y / (1 + exp(-x)), as y sigmoid(x) is in graphs; else -1. A division takes longer.
  int TimesSigmoidOf(int v) const {
    using Op = rows::ScalarOp;
    if (!Is(v, Op::kDiv) || !Is(value(v).operands[1], Op::kAdd)) return -1;
    const std::vector<int>& terms = value(value(v).operands[1]).operands;
    for (const auto& [one, power] :
         {std::pair(terms[0], terms[1]), std::pair(terms[1], terms[0])}) {
      if (value(one).kind != Kind::kConst || value(one).number != 1 || !Is(power, Op::kExp))
        continue;
      const int negated = value(power).operands[0];
      if (Is(negated, Op::kNeg)) return value(negated).operands[0];
    }
    return -1;
  }

  // The offset of a linear access at column c0, and the elements from a column to the next.
  std::pair<std::string, int64_t> Offset(const rows::Access& access) const {
    LinearAccess linear = rows::Linearize(access);
    linear.outer.resize(outer_.size());
    linear.inner.resize(1);
    std::vector<int64_t> coefficients = linear.outer;
    coefficients.push_back(linear.inner[0]);
    std::vector<std::string> names = outer_;
    // 32 bits where they do: addresses of many columns are in registers at once.
    const bool narrow = linear.inner[0] < std::numeric_limits<int32_t>::max() / columns_;
    names.push_back(narrow ? "column" : "c0");
    return {rows::LinearText(linear.offset, coefficients, names), linear.inner[0]};
  }

  // The most neighbours that one load or store may have; a power of two. Those of 16 bytes and more
  // are made of loads of 16.
  static int Widest(const rows::Access& access, DType storage, int64_t alignment) {
    const LinearAccess linear = rows::Linearize(access);
    if (linear.inner.empty() || linear.inner[0] != 1) return 1;
    const int64_t size = DTypeSize(storage);
    int64_t most = std::max<int64_t>(1, std::min<int64_t>(16, alignment) / size);
    const auto divides = [&](int64_t n) { return n % most == 0; };
    while (most > 1 && !(divides(linear.offset) && std::ranges::all_of(linear.outer, divides)))
      most /= 2;
    constexpr int kAny = 16;
    return most * size == 16 ? kAny : static_cast<int>(most);
  }

  std::string Fetch(const Value& x, const std::string& offset) const {
    return Cat("cf_load(cf_load_vector<1>(", BufferText(x.buffer), " + (", offset, ")).v[0])");
  }

  void RowValue(int v) {
    const Value& x = value(v);
    const std::string name = Cat(TypeText(x.type), " v", v);
    if (x.kind == Kind::kConst) {
      lines_.Add("const ", name, " = ", rows::ConstText(x), ";");
    } else if (x.kind == Kind::kOuterIndex) {
      lines_.Add("const ", name, " = (int64_t)", outer_[static_cast<size_t>(x.dim)], ";");
    } else if (x.kind == Kind::kPointwise) {
      lines_.Add("const ", name, " = ", Expression(v), ";");
    } else if (x.access.IsLinear()) {
      lines_.Add("const ", name, " = cf_load(", Loaded(v), "[0]);");
    } else {
      const rows::BoundedText bounded = BoundedAccessText(x.access, outer_, {});
      lines_.Add(name, " = v", x.out_of_bounds, ";");
      lines_.Add("if (", bounded.condition, ") v", v, " = ", Fetch(x, bounded.offset), ";");
    }
  }

  void Each(const std::string& text) {
    lines_.Unroll("k", "V");
    lines_.Add(text);
    lines_.Add("}");
  }

  void ElementValue(int v) {
    const Value& x = value(v);
    lines_.Add(TypeText(x.type), " v", v, "[V];");
    const std::string target = Cat("v", v, "[k] = ");
    switch (x.kind) {
      case Kind::kProduct:
        return Each(Cat(target, "sums", together_ ? Cat("[", x.integer, "]") : "", "[k];"));
      case Kind::kInnerIndex:
        return Each(target + "(int64_t)(column + k);");
      case Kind::kPointwise:
        return Each(target + Expression(v) + ";");
      case Kind::kLoad:
        break;
      default:
        return Each(target + rows::ConstText(x) + ";");  // the index of a dimension of size 1
    }
    if (!x.access.IsLinear()) {
      const rows::BoundedText bounded = BoundedAccessText(x.access, outer_, {"(c0 + k)"});
      return Each(Cat(target, "v", x.out_of_bounds, "; if (", bounded.condition, ") ", target,
                      Fetch(x, bounded.offset), ";"));
    }
    Each(Cat(target, "cf_load(", Loaded(v), "[k]);"));
  }

  // What is stored, and whether it is rows of halves, 16 bytes of them at multiples of 16 bytes.
  void WriteOutputs() {
    lines_.Add("template <int V>");
    lines_.Add("struct Outputs {");
    bool half_rows = rounds_;
    for (size_t s = 0; s < stage_.stores.size(); ++s) {
      const rows::Store& store = stage_.stores[s];
      lines_.Add("CfVec<", StorageText(store.storage), ", V> s", s, ";");
      half_rows =
          half_rows && Widest(store.access, store.storage, kOutputAlignment) > 1 &&
          Widest(store.access, store.storage, kOutputAlignment) * DTypeSize(store.storage) >= 16;
    }
    lines_.Add("};");
    result_.half_rows = half_rows;
    lines_.Add("enum : bool { kHalfRows = ", half_rows ? 1 : 0, " };");
  }

  void PutElements(size_t s) {
    const rows::Store& store = stage_.stores[s];
    const auto [offset, step] = Offset(store.access);
    const std::string to = Cat(BufferText(store.buffer), " + (", offset, ")");
    const int widest = Widest(store.access, store.storage, kOutputAlignment);
    if (widest > 1) {
      lines_.Add("if constexpr (V <= ", widest, ") {");
      lines_.Add("cf_store_vector<V, true>(", to, ", out.s", s, ");");
      lines_.Add("} else {");
    }
    Each(Cat("(", to, ")[(I)k * ", step, "] = out.s", s, ".v[k];"));
    if (widest > 1) lines_.Add("}");
  }

  const rows::Stage& stage_;
  const std::vector<rows::Stage>& further_;
  const int64_t columns_;
  const bool together_;
  std::vector<std::string> outer_ = {"o0"};
  std::string row_;
  bool rounds_;  // all results, to a half type
  std::set<int> live_;
  std::vector<std::string> members_;
  rows::CudaLines lines_;
  EpilogueText result_;
};

}  // namespace

EpilogueText WriteEpilogueText(const Contraction& contraction) {
  return EpilogueWriter(contraction).Write();
}

std::string EpilogueText::Kernel(const char* name, const char* bounds, const std::string& before,
                                 const std::string& call) const {
  rows::Lines lines;
  lines.Add("extern \"C\" __global__ void __launch_bounds__(", bounds, ") ", name, "(", before,
            ", ", parameters, ") {");
  if (apart) {
    lines.Add("const Epilogues epilogue = {{", arguments, "}};");
  } else {
    lines.Add("const Epilogue epilogue = {", arguments, "};");
  }
  lines.Add(call);
  lines.Add("}");
  return lines.Text();
}

std::vector<LaunchArg> EpilogueText::Args(std::vector<LaunchArg> before) const {
  for (const rows::BufferRef& buffer : buffers) before.push_back(rows::ArgOf(buffer));
  return before;
}

}  // namespace cudaforge::tiles
