#include "generators/rows/cuda/kernel.h"

#include <algorithm>

#include "generators/rows/cuda/writer.h"
#include "generators/rows/stage_loops.h"
#include "generators/rows/text.h"

namespace cudaforge::rows {

using Kind = Value::Kind;

CudaKernelWriter::CudaKernelWriter(const CudaPlan& plan, std::string name)
    : plan_(plan), stage_(plan.stage), name_(std::move(name)) {
  for (int v : LiveValues(stage_)) live_.insert(v);
}

CudaKernelText CudaKernelWriter::Write() {
  Signature();
  OpenRun();
  Position();
  Declarations();
  for (int pass = 0; pass < plan_.passes; ++pass) {
    RowValues(pass);
    Pass(pass);
  }
  RowValues(plan_.passes);
  RowStores();
  CloseRun();
  lines_.Add("}");
  result_.text = lines_.Text();
  return std::move(result_);
}

void CudaKernelWriter::Parameter(const BufferRef& buffer, DType storage, bool written) {
  auto& buffers = result_.buffers;
  if (std::find(buffers.begin(), buffers.end(), buffer) != buffers.end()) return;
  buffers.push_back(buffer);
  parameters_.push_back(
      Cat(written ? "" : "const ", StorageText(storage), "* __restrict__ ", BufferText(buffer)));
}

void CudaKernelWriter::Signature() {
  for (const Store& s : stage_.stores) Parameter(s.buffer, s.storage, true);
  for (const RunSum& sum : stage_.run_sums) {
    Parameter({BufferKind::kScratch, sum.scratch}, StorageOf(value(sum.value).type), true);
  }
  for (int v : live_) {
    if (value(v).kind == Kind::kLoad) Parameter(value(v).buffer, value(v).storage, false);
  }
  lines_.Add("extern \"C\" __global__ void __launch_bounds__(", plan_.threads, ") ", name_, "(");
  for (size_t i = 0; i < parameters_.size(); ++i) {
    lines_.Add("    ", parameters_[i], i + 1 < parameters_.size() ? "," : ") {");
  }
}

// A group's run of rows: its sums, and the loop over its rows, each as `row0`.
void CudaKernelWriter::OpenRun() {
  lines_.Add("using I = ", plan_.wide ? "int64_t" : "int32_t", ";");
  if (!plan_.runs()) return;
  lines_.Add("const int t = threadIdx.x % ", plan_.group, ";");
  lines_.Add("const I run = (I)blockIdx.x * ", plan_.rows_per_block, " + threadIdx.x / ",
             plan_.group, ";");
  for (size_t n = 0; n < stage_.run_sums.size(); ++n) {
    const Type type = value(stage_.run_sums[n].value).type;
    const std::string extent = Cat("[", plan_.unroll, "][", plan_.vector, "] = {};");
    lines_.Add(TypeText(type), " q", n, extent);
    if (type == Type::kF32) lines_.Add("float y", n, extent);
  }
  lines_.Add("#pragma unroll 1");
  lines_.Add("for (int r = 0; r < ", stage_.rows_per_run, "; ++r) {");
}

void CudaKernelWriter::CloseRun() {
  if (!plan_.runs()) return;
  lines_.Add("}");
  // The last block may have more groups than runs are left.
  const bool spare = stage_.runs() % plan_.rows_per_block != 0;
  if (spare) lines_.Add("if (run < ", stage_.runs(), ") {");
  lines_.Unroll("u", plan_.unroll);
  lines_.Add("const I e0 = ((I)u * ", plan_.group, " + t) * ", plan_.vector, ";");
  for (size_t n = 0; n < stage_.run_sums.size(); ++n) {
    const RunSum& sum = stage_.run_sums[n];
    const Type type = value(sum.value).type;
    const std::string to =
        Cat(BufferText({BufferKind::kScratch, sum.scratch}), " + run * ", plan_.length, " + e0");
    const std::string all = type == Type::kF32 ? Cat("cf_settle(q", n, "[u][k], y", n, "[u][k])")
                                               : Cat("q", n, "[u][k]");
    lines_.Add("CfVec<", TypeText(type), ", ", plan_.vector, "> w", n, ";");
    lines_.Unroll("k", plan_.vector);
    lines_.Add("w", n, ".v[k] = ", all, ";");
    lines_.Add("}");
    if (WholeVectors()) {
      lines_.Add(plan_.full ? "" : Cat("if (e0 < ", plan_.length, ") "), "cf_store_vector<",
                 plan_.vector, ">(", to, ", w", n, ");");
    } else {
      lines_.Unroll("k", plan_.vector);
      lines_.Add("if (e0 + k < ", plan_.length, ") (", to, ")[k] = w", n, ".v[k];");
      lines_.Add("}");
    }
  }
  lines_.Add("}");
  if (spare) lines_.Add("}");
}

void CudaKernelWriter::Position() {
  if (plan_.column) {
    lines_.Add("const int tx = threadIdx.x % ", plan_.group, ";");
    lines_.Add("const int ty = threadIdx.x / ", plan_.group, ";");
    lines_.Add("const I row0 = ((I)blockIdx.x * ", plan_.group, " + tx) * ", plan_.vector, ";");
  } else if (plan_.runs()) {
    lines_.Add("const I row0 = run * ", stage_.rows_per_run, " + r;");
  } else {
    lines_.Add("const int t = threadIdx.x % ", plan_.group, ";");
    lines_.Add("const I row0 = (I)blockIdx.x * ", plan_.rows_per_block, " + threadIdx.x / ",
               plan_.group, ";");
  }
  // Threads after the last row repeat row 0 and store nothing, so that barriers and shuffles stay
  // uniform.
  if (ragged()) lines_.Add("const bool active = row0 < ", plan_.rows, ";");
  lines_.Add("const I row = ", ragged() ? "active ? row0 : 0" : "row0", ";");
  AddCoordinates(&lines_, "o", "row", stage_.outer);
  const std::vector<std::string> outer = OuterNames(plan_, false);
  for (int v : live_) {
    if (value(v).kind == Kind::kLoad && value(v).access.IsLinear()) {
      Base(Cat("b", v), value(v).access, outer);
    }
  }
  for (size_t s = 0; s < stage_.stores.size(); ++s) {
    if (stage_.stores[s].access.IsLinear()) Base(Cat("d", s), stage_.stores[s].access, outer);
  }
  if (!plan_.shifted) return;
  const std::string start =
      plan_.shift_value >= 0 ? Cat("b", plan_.shift_value) : Cat("d", plan_.shift_store);
  lines_.Add("const I shift = ", start, " % ", plan_.vector, ";");
}

void CudaKernelWriter::Base(const std::string& name, const Access& access,
                            const std::vector<std::string>& outer) {
  LinearAccess linear = Linearize(access);
  linear.outer.resize(outer.size());
  lines_.Add("const I ", name, " = ", LinearText(linear.offset, linear.outer, outer), ";");
}

void CudaKernelWriter::Declarations() {
  int64_t dynamic = 0;
  for (int v : live_) {
    const Value& x = value(v);
    if (x.kind == Kind::kReduce) {
      lines_.Add("using Op", v, " = ", ReduceOpText(stage_, v), ";");
      if (const int64_t states = plan_.shared_states(x); states > 0) {
        lines_.Add("__shared__ Op", v, "::State s", v, "[", states, "];");
      }
    }
    if (x.kind == Kind::kScan) {
      lines_.Add("using Op", v, " = ", ScanOpText(stage_, v), ";");
      if (const int64_t states = plan_.shared_states(x); states > 0) {
        lines_.Add("__shared__ Op", v, "::State s", v, "[", states, "];");
      } else {
        lines_.Add("Op", v, "::State* const s", v, " = nullptr;");
      }
    }
    if (kept(v)) DeclareArray(v);
    if (staged(v)) {
      if (dynamic == 0) lines_.Add("extern __shared__ uint4 dynamic_shared[];");
      const std::string type = VectorType(v);
      lines_.Add(type, "* const z", v, " = (", type, "*)((char*)dynamic_shared + ", dynamic, ");");
      const int64_t size = x.access.IsLinear() ? DTypeSize(x.storage) : 8;
      dynamic += (plan_.chunks * plan_.unroll * plan_.group * plan_.vector * size + 15) / 16 * 16;
    }
  }
}

// Loads with bounds are kept as values: the value outside may not exist in the storage type.
std::string CudaKernelWriter::VectorType(int v) const {
  const Value& x = value(v);
  return Cat("CfVec<", x.access.IsLinear() ? StorageText(x.storage) : TypeText(x.type), ", ",
             plan_.vector, ">");
}

void CudaKernelWriter::DeclareArray(int v) {
  if (value(v).kind == Kind::kLoad) {
    lines_.Add(VectorType(v), " l", v, "[", plan_.unroll, "];");
  } else {
    lines_.Add(TypeText(value(v).type), " x", v, "[", plan_.unroll, "][", plan_.vector, "];");
  }
}

// The name of a value inside the k loop; `arrays`: element values in x arrays.
std::string CudaKernelWriter::Ref(int v, const std::set<int>& arrays) const {
  if (value(v).space == Space::kRow && plan_.column) return Cat("v", v, "[k]");
  if (element(v) && arrays.count(v) != 0) return Cat("x", v, "[u][k]");
  return Cat("v", v);
}

std::string CudaKernelWriter::Expression(int v, const std::set<int>& arrays) const {
  std::vector<std::string> operands;
  for (int o : value(v).operands) operands.push_back(Ref(o, arrays));
  return PointwiseText(stage_, v, operands);
}

// Writes values of spaces kConst and kRow that are known before `pass`.
void CudaKernelWriter::RowValues(int pass) {
  for (int v : live_) {
    const Value& x = value(v);
    if (element(v) || pass_of(v) != pass || x.kind == Kind::kReduce) continue;
    const std::string type = TypeText(x.type);
    const bool array = plan_.column && x.space == Space::kRow;
    const std::string target = array ? Cat("v", v, "[k]") : Cat("v", v);
    if (array) {
      lines_.Add(type, " v", v, "[", plan_.vector, "];");
      if (vector_load(v)) {
        lines_.Add("const ", VectorType(v), " l", v, " = cf_load_vector<", plan_.vector, ">(",
                   BufferText(x.buffer), " + b", v, ");");
      }
      lines_.Unroll("k", plan_.vector);
    } else if (x.kind == Kind::kLoad && !x.access.IsLinear()) {
      lines_.Add(type, " v", v, ";");
    }
    std::string text;
    switch (x.kind) {
      case Kind::kConst:
        text = ConstText(x);
        break;
      case Kind::kOuterIndex:
        text = "(int64_t)" + OuterIndex(x.dim, array);
        break;
      case Kind::kPointwise:
        text = Expression(v, {});
        break;
      case Kind::kLoad:
        if (vector_load(v)) {
          text = Cat("cf_load(l", v, ".v[k])");
        } else if (x.access.IsLinear()) {
          text = Fetch(x, Cat("b", v, array ? PerColumn(x.access) : ""));
        } else {
          const BoundedText b = BoundedAccessText(x.access, OuterNames(plan_, array), {});
          lines_.Add(target, " = v", x.out_of_bounds, ";");
          lines_.Add("if (", b.condition, ") ", target, " = ", Fetch(x, b.offset), ";");
        }
        break;
      default:
        break;
    }
    const bool declared = array || (x.kind == Kind::kLoad && !x.access.IsLinear());
    if (!text.empty()) lines_.Add(declared ? "" : "const " + type + " ", target, " = ", text, ";");
    if (array) lines_.Add("}");
  }
}

std::string CudaKernelWriter::OuterIndex(int dim, bool per_k) const {
  if (dim < 0) return per_k ? "(row + k)" : "row";
  return OuterNames(plan_, per_k)[static_cast<size_t>(dim)];
}

std::string CudaKernelWriter::Fetch(const Value& x, const std::string& offset) const {
  return Cat("cf_load(cf_load_vector<1>(", BufferText(x.buffer), " + (", offset, ")).v[0])");
}

std::string CudaKernelWriter::PerColumn(const Access& access) const {
  const int64_t c = Coefficient(Linearize(access).outer, stage_.outer.size() - 1);
  return c == 0 ? "" : Cat(" + k * ", c);
}

// The offset of an access without bounds at inner coordinates PREFIX0, PREFIX1, ...
std::string CudaKernelWriter::Offset(const std::string& base, const Access& access,
                                     const std::string& prefix, bool per_k) const {
  LinearAccess linear = Linearize(access);
  linear.inner.resize(stage_.inner.size());
  const std::string inner = LinearText(0, linear.inner, InnerNames(plan_, prefix));
  return Cat(base, per_k && plan_.column ? PerColumn(access) : "",
             inner == "0" ? "" : " + " + inner);
}

// Opens the u loop: position e0 (row engine) or e (column engine), and whether it is inside the
// row.
void CudaKernelWriter::OpenU(bool vector_coordinates) {
  lines_.Unroll("u", plan_.unroll);
  if (plan_.column) {
    lines_.Add("const I e = (c * ", plan_.parts, " + ty) * ", plan_.unroll, " + u;");
    lines_.Add("const bool ok = ", plan_.full ? "true" : Cat("e < ", plan_.length), ";");
    AddCoordinates(&lines_, "i", "e", stage_.inner);
    return;
  }
  lines_.Add("const I e0 = ((c * ", plan_.unroll, " + u) * ", plan_.group, " + t) * ", plan_.vector,
             plan_.shifted ? " - shift;" : ";");
  if (vector_coordinates) AddCoordinates(&lines_, "j", "e0", stage_.inner);
}

void CudaKernelWriter::OpenK() {
  lines_.Unroll("k", plan_.vector);
  if (plan_.column) return;
  lines_.Add("const I e = e0 + k;");
  std::string ok = "true";
  if (!plan_.full) ok = Cat(plan_.shifted ? "e >= 0 && " : "", "e < ", plan_.length);
  lines_.Add("const bool ok = ", ok, ";");
  AddCoordinates(&lines_, "i", "e", stage_.inner);
}

void CudaKernelWriter::Loads(const std::vector<int>& loads) {
  if (loads.empty()) return;
  bool any_scalar = false, any_vector = false;
  for (int v : loads) {
    if (!kept(v)) DeclareArray(v);
    if (FromShared(v)) continue;
    (vector_load(v) ? any_vector : any_scalar) = true;
  }
  OpenU(any_vector);
  for (int v : loads) {
    const Value& x = value(v);
    const std::string target = Cat("l", v, "[u]");
    if (FromShared(v)) {
      lines_.Add(target, " = z", v, SharedIndex());
      continue;
    }
    if (!vector_load(v)) continue;
    const std::string pointer =
        Cat(BufferText(x.buffer), " + (",
            Offset(Cat("b", v), x.access, plan_.column ? "i" : "j", false), ")");
    const std::string whole = Cat("cf_load_vector<", plan_.vector, ">(", pointer, ")");
    if (plan_.full) {
      lines_.Add(target, " = ", whole, ";");
    } else if (plan_.column || WholeVectors()) {
      lines_.Add(target, " = cf_zero<", plan_.vector, ", ", StorageText(x.storage), ">();");
      lines_.Add("if (", plan_.column ? "ok" : Cat("e0 < ", plan_.length), ") ", target, " = ",
                 whole, ";");
    } else {
      lines_.Add(target, " = cf_load_part<", plan_.vector, ">(", pointer, ", e0, (I)", plan_.length,
                 ");");
    }
  }
  if (any_scalar) {
    OpenK();
    for (int v : loads) {
      if (!vector_load(v) && !FromShared(v)) ScalarLoad(v);
    }
    lines_.Add("}");
  }
  for (int v : loads) {
    if (staged(v) && !FromShared(v)) {
      lines_.Add("z", v, "[(c * ", plan_.unroll, " + u) * ", plan_.group, " + t] = l", v, "[u];");
    }
  }
  lines_.Add("}");
}

std::string CudaKernelWriter::SharedIndex() const {
  return Cat("[(c * ", plan_.unroll, " + u) * ", plan_.group, " + t];");
}

void CudaKernelWriter::ScalarLoad(int v) {
  const Value& x = value(v);
  const std::string target = Cat("l", v, "[u].v[k]");
  if (x.access.IsLinear()) {
    lines_.Add(target, " = cf_zero<1, ", StorageText(x.storage), ">().v[0];");
    lines_.Add("if (ok) ", target, " = cf_load_vector<1>(", BufferText(x.buffer), " + (",
               Offset(Cat("b", v), x.access, "i", true), ")).v[0];");
    return;
  }
  const BoundedText b =
      BoundedAccessText(x.access, OuterNames(plan_, plan_.column), InnerNames(plan_, "i"));
  lines_.Add(target, " = ", Ref(x.out_of_bounds, {}), ";");
  lines_.Add("if (ok && ", b.condition, ") ", target, " = ", Fetch(x, b.offset), ";");
}

CudaKernelText WriteCudaKernel(const CudaPlan& plan, const std::string& name) {
  return CudaKernelWriter(plan, name).Write();
}

}  // namespace cudaforge::rows
