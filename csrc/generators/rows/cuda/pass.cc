// One sweep over the inner space: its work, and its text.
#include <algorithm>

#include "generators/rows/cuda/writer.h"
#include "generators/rows/stage_loops.h"
#include "generators/rows/text.h"

namespace cudaforge::rows {

using Kind = Value::Kind;

bool CudaKernelWriter::Compensated(int v) const {
  return plan_.chunks > 1 && value(v).reduce == ReduceOp::kSum && value(v).type == Type::kF32;
}

CudaKernelWriter::PassWork CudaKernelWriter::FindWork(int pass) const {
  PassWork work;
  std::vector<int> roots;
  for (int v : live_) {
    if (value(v).kind == Kind::kReduce && pass_of(v) == pass + 1) {
      work.reduces.insert(v);
      roots.push_back(value(v).operands[0]);
    }
  }
  for (size_t s = 0; s < stage_.stores.size(); ++s) {
    const int v = stage_.stores[s].value;
    if (!element(v) || pass_of(v) != pass) continue;
    work.stores.push_back(s);
    roots.push_back(v);
  }
  for (size_t n = 0; n < stage_.run_sums.size(); ++n) {
    const int v = stage_.run_sums[n].value;
    if (pass_of(v) != pass) continue;
    work.run_sums.push_back(n);
    roots.push_back(v);
  }
  work.empty = roots.empty();
  work.segment.assign(stage_.values.size(), 0);
  for (int v : Closure(stage_, roots, arrays_)) {
    if (!element(v)) continue;
    int segment = 0;
    for (int o : value(v).operands)
      segment = std::max(segment, work.segment[static_cast<size_t>(o)]);
    if (value(v).kind == Kind::kScan) {
      work.scans.insert(v);
      ++segment;
    }
    if (value(v).kind == Kind::kLoad) {
      work.loads.push_back(v);
    } else if (kept(v)) {
      work.kept.insert(v);
    }
    work.segment[static_cast<size_t>(v)] = segment;
    work.segments = std::max(work.segments, segment + 1);
  }
  return work;
}

void CudaKernelWriter::Pass(int pass) {
  const PassWork work = FindWork(pass);
  if (work.empty) return;
  for (int v : work.reduces) {
    const std::string columns = plan_.column ? Cat("[", plan_.vector, "]") : "";
    lines_.Add("Op", v, "::State a", v, columns, ";");
    if (Compensated(v)) lines_.Add("float c", v, columns, ";");
    if (plan_.column) lines_.Unroll("k", plan_.vector);
    const std::string k = plan_.column ? "[k]" : "";
    lines_.Add("a", v, k, " = Op", v, "::Identity();");
    if (Compensated(v)) lines_.Add("c", v, k, " = 0.0f;");
    if (plan_.column) lines_.Add("}");
  }
  lines_.Add("{");
  for (int v : work.scans) {
    lines_.Add("Op", v, "::State carry", v, plan_.column ? Cat("[", plan_.vector, "]") : "", ";");
    if (plan_.column) lines_.Unroll("k", plan_.vector);
    lines_.Add("carry", v, plan_.column ? "[k]" : "", " = Op", v, "::Identity();");
    if (plan_.column) lines_.Add("}");
  }
  if (plan_.chunks > 1) {
    lines_.Add("#pragma unroll 1");
    lines_.Add("for (I c = 0; c < ", plan_.chunks, "; ++c) {");
  } else {
    lines_.Add("constexpr I c = 0;");
  }
  std::vector<int> loads;
  for (int v : work.loads) {
    if (!(kept(v) && loaded_.count(v) != 0)) loads.push_back(v);
  }
  Loads(loads);
  const std::set<int> outside = arrays_;
  for (int segment = 0; segment < work.segments; ++segment) Segment(work, segment);
  if (plan_.chunks > 1) lines_.Add("}");
  lines_.Add("}");
  arrays_ = outside;
  for (int v : work.kept) arrays_.insert(v);
  for (int v : work.loads) {
    if (kept(v) || staged(v)) loaded_.insert(v);
  }
  Finish(work.reduces, pass + 1 == plan_.passes);
}

void CudaKernelWriter::Segment(const PassWork& work, int segment) {
  auto here = [&](int v) { return work.segment[static_cast<size_t>(v)] == segment; };
  std::vector<int> roots, reduces, scans;
  std::vector<size_t> stores;
  for (int v : work.reduces) {
    if (!here(value(v).operands[0])) continue;
    reduces.push_back(v);
    roots.push_back(value(v).operands[0]);
  }
  for (int v : work.scans) {
    if (!here(value(v).operands[0])) continue;
    scans.push_back(v);
    roots.push_back(value(v).operands[0]);
    if (!kept(v)) DeclareArray(v);
  }
  for (size_t s : work.stores) {
    if (!here(stage_.stores[s].value)) continue;
    stores.push_back(s);
    roots.push_back(stage_.stores[s].value);
  }
  // these passes have no scans
  for (size_t n : work.run_sums) roots.push_back(stage_.run_sums[n].value);
  for (int v : work.kept) {
    if (here(v)) roots.push_back(v);
  }
  for (int v : reduces) {
    lines_.Add("Op", v, "::State p", v, "[", plan_.vector, "];");
    lines_.Unroll("k", plan_.vector);
    lines_.Add("p", v, "[k] = Op", v, "::Identity();");
    lines_.Add("}");
  }
  const bool vector_stores =
      std::any_of(stores.begin(), stores.end(), [&](size_t s) { return vector_store(s); });
  OpenU(vector_stores);
  for (size_t s : stores) {
    if (!vector_store(s)) continue;
    lines_.Add("CfVec<", StorageText(stage_.stores[s].storage), ", ", plan_.vector, "> w", s, ";");
  }
  OpenK();
  std::set<int> defined = arrays_;
  for (int v : Closure(stage_, roots, arrays_)) {
    if (!element(v)) continue;
    ElementValue(v, defined);
  }
  for (int v : work.kept) {
    if (here(v) && value(v).kind == Kind::kPointwise) lines_.Add("x", v, "[u][k] = v", v, ";");
  }
  for (int v : scans) {
    lines_.Add("x", v, "[u][k] = ok ? (", TypeText(value(v).type), ")",
               Ref(value(v).operands[0], defined), " : Op", v, "::Identity();");
  }
  for (int v : reduces) {
    lines_.Add("if (ok) p", v, "[k] = Op", v, "::Combine(p", v, "[k], Op", v, "::Of(",
               Ref(value(v).operands[0], defined), ", e));");
  }
  for (size_t n : work.run_sums) RunSumOf(n, defined);
  for (size_t s : stores) ElementStore(s, defined);
  lines_.Add("}");
  for (size_t s : stores) {
    if (vector_store(s)) VectorStore(s);
  }
  lines_.Add("}");
  for (int v : scans) Scan(v);
  for (int v : reduces) Accumulate(v);
}

void CudaKernelWriter::ElementValue(int v, const std::set<int>& arrays) {
  const Value& x = value(v);
  std::string text;
  switch (x.kind) {
    case Kind::kLoad:
      text = x.access.IsLinear() ? Cat("cf_load(l", v, "[u].v[k])") : Cat("l", v, "[u].v[k]");
      break;
    case Kind::kInnerIndex:
      text = Cat("(", TypeText(x.type), ")", x.dim < 0 ? "e" : Cat("i", x.dim));
      break;
    case Kind::kConst:  // the index of a dimension of size 1
      text = ConstText(x);
      break;
    case Kind::kPointwise:
      text = Expression(v, arrays);
      break;
    default:
      return;
  }
  lines_.Add("const ", TypeText(x.type), " v", v, " = ", text, ";");
}

void CudaKernelWriter::ElementStore(size_t s, const std::set<int>& arrays) {
  const Store& store = stage_.stores[s];
  const std::string stored =
      Cat("CfStore<", StorageText(store.storage), ">::From(", Ref(store.value, arrays), ")");
  if (vector_store(s)) {
    lines_.Add("w", s, ".v[k] = ", stored, ";");
    return;
  }
  const std::string active = ragged() ? "active && " : "";
  if (store.access.IsLinear()) {
    lines_.Add("if (", active, "ok) ", BufferText(store.buffer), "[",
               Offset(Cat("d", s), store.access, "i", true), "] = ", stored, ";");
    return;
  }
  const BoundedText b =
      BoundedAccessText(store.access, OuterNames(plan_, plan_.column), InnerNames(plan_, "i"));
  lines_.Add("if (", active, "ok && ", b.condition, ") ", BufferText(store.buffer), "[", b.offset,
             "] = ", stored, ";");
}

void CudaKernelWriter::RunSumOf(size_t n, const std::set<int>& arrays) {
  const int v = stage_.run_sums[n].value;
  const std::string all = Cat("q", n, "[u][k]"), x = Ref(v, arrays);
  const std::string inside = Cat("if (", ragged() ? "active && " : "", "ok) ");
  if (value(v).type == Type::kF32) {
    lines_.Add(inside, "cf_accumulate(", all, ", y", n, "[u][k], ", x, ");");
  } else {
    lines_.Add(inside, all, " += ", x, ";");
  }
}

void CudaKernelWriter::VectorStore(size_t s) {
  const Store& store = stage_.stores[s];
  const std::string pointer =
      Cat(BufferText(store.buffer), " + (",
          Offset(Cat("d", s), store.access, plan_.column ? "i" : "j", false), ")");
  const std::string active = ragged() ? "active" : "true";
  if (plan_.column || plan_.full || WholeVectors()) {
    const std::string inside = plan_.column ? "ok"
                               : plan_.full ? "true"
                                            : Cat("e0 < ", plan_.length);
    lines_.Add("if (", active, " && ", inside, ") cf_store_vector<", plan_.vector, ">(", pointer,
               ", w", s, ");");
  } else {
    lines_.Add("if (", active, ") cf_store_part<", plan_.vector, ">(", pointer, ", w", s,
               ", e0, (I)", plan_.length, ");");
  }
}

void CudaKernelWriter::Scan(int v) {
  if (plan_.column) {
    lines_.Add("cf_scan_column<Op", v, ", ", plan_.group, ", ", plan_.parts, ", ", plan_.unroll,
               ", ", plan_.vector, ">(x", v, ", carry", v, ", s", v, ", (int)(c & 1), tx, ty);");
  } else {
    lines_.Add("cf_scan_row<Op", v, ", ", plan_.group, ", ", plan_.unroll, ", ", plan_.vector,
               ">(x", v, ", carry", v, ", s", v, ", (int)(c & 1), t);");
  }
  arrays_.insert(v);
}

void CudaKernelWriter::Accumulate(int v) {
  const std::string k = plan_.column ? "[k]" : "";
  const std::string partial =
      plan_.column ? Cat("p", v, "[k]") : Cat("cf_tree<Op", v, ", ", plan_.vector, ">(p", v, ")");
  if (plan_.column) lines_.Unroll("k", plan_.vector);
  if (Compensated(v)) {
    lines_.Add("cf_accumulate(a", v, k, ", c", v, k, ", ", partial, ");");
  } else {
    lines_.Add("a", v, k, " = Op", v, "::Combine(a", v, k, ", ", partial, ");");
  }
  if (plan_.column) lines_.Add("}");
}

// Combines the threads' states to the row's value in every thread. Reduces of one pass share a
// barrier. In the `last` pass only the threads of ty 0 get a column's value.
void CudaKernelWriter::Finish(const std::set<int>& reduces, bool last) {
  const std::string turn = plan_.runs() ? "r % 2 * 32 + " : "";
  const std::string k = plan_.column ? "[k]" : "";
  for (int v : reduces) {
    if (plan_.column) lines_.Unroll("k", plan_.vector);
    if (Compensated(v)) lines_.Add("a", v, k, " = cf_settle(a", v, k, ", c", v, k, ");");
    if (!plan_.column) {
      lines_.Add("a", v, " = cf_lanes<Op", v, ", ", std::min(plan_.group, 32), ">(a", v, ");");
      if (plan_.crosses_warps())
        lines_.Add("if (t % 32 == 0) s", v, "[", turn, "t / 32] = a", v, ";");
    } else {
      const int together = plan_.parts_per_warp();
      if (together > 1) {
        lines_.Add("a", v, "[k] = cf_lanes<Op", v, ", 32, ", plan_.group, ">(a", v, "[k]);");
      }
      if (plan_.crosses_warps()) {
        lines_.Add(together > 1 ? Cat("if (ty % ", together, " == 0) ") : "", "s", v, "[(ty / ",
                   together, " * ", plan_.vector, " + k) * ", plan_.group, " + tx] = a", v, "[k];");
      }
    }
    if (plan_.column) lines_.Add("}");
  }
  if (plan_.crosses_warps() && !reduces.empty()) lines_.Add("__syncthreads();");
  const int warps = plan_.group / 32;
  for (int v : reduces) {
    const std::string type = TypeText(value(v).type);
    if (plan_.column) {
      lines_.Add(type, " v", v, "[", plan_.vector, "];");
      lines_.Unroll("k", plan_.vector);
      std::string all = Cat("a", v, "[k]");
      if (plan_.crosses_warps()) {
        all = Cat(last ? Cat("ty != 0 ? Op", v, "::Identity() : ") : "", "cf_column<Op", v, ", ",
                  plan_.group, ", ", plan_.parts / plan_.parts_per_warp(), ", ", plan_.vector,
                  ">(s", v, ", tx, k)");
      }
      lines_.Add("v", v, "[k] = (", type, ")Op", v, "::Result(", all, ");");
      lines_.Add("}");
    } else {
      const std::string all = plan_.crosses_warps() ? Cat("cf_lanes<Op", v, ", ", warps, ">(s", v,
                                                          "[", turn, "t % ", warps, "])")
                                                    : Cat("a", v);
      lines_.Add("const ", type, " v", v, " = (", type, ")Op", v, "::Result(", all, ");");
    }
  }
}

void CudaKernelWriter::RowStores() {
  for (size_t s = 0; s < stage_.stores.size(); ++s) {
    const Store& store = stage_.stores[s];
    if (element(store.value)) continue;
    const std::string stored =
        Cat("CfStore<", StorageText(store.storage), ">::From(", Ref(store.value, {}), ")");
    const std::string leader =
        Cat(ragged() ? "active && " : "", plan_.column ? "ty == 0" : "t == 0");
    const std::string buffer = BufferText(store.buffer);
    lines_.Add("if (", leader, ") {");
    if (vector_store(s)) {
      lines_.Add("CfVec<", StorageText(store.storage), ", ", plan_.vector, "> w", s, ";");
    }
    if (plan_.column) lines_.Unroll("k", plan_.vector);
    if (vector_store(s)) {
      lines_.Add("w", s, ".v[k] = ", stored, ";");
    } else if (store.access.IsLinear()) {
      lines_.Add(buffer, "[d", s, plan_.column ? PerColumn(store.access) : "", "] = ", stored, ";");
    } else {
      const BoundedText b = BoundedAccessText(store.access, OuterNames(plan_, plan_.column), {});
      lines_.Add("if (", b.condition, ") ", buffer, "[", b.offset, "] = ", stored, ";");
    }
    if (plan_.column) lines_.Add("}");
    if (vector_store(s)) {
      lines_.Add("cf_store_vector<", plan_.vector, ">(", buffer, " + d", s, ", w", s, ");");
    }
    lines_.Add("}");
  }
}

}  // namespace cudaforge::rows
