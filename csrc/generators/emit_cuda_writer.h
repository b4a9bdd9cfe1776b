// Names and fragments that the kernel text is put together from; internal to emit_cuda_kernel.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "generators/emit_cuda_kernel.h"
#include "generators/emit_cuda_plan.h"
#include "generators/emit_text.h"

namespace cudaforge::rows {

class CudaLines : public Lines {
 public:
  void Unroll(const std::string& variable, int64_t count) {
    Add("#pragma unroll");
    Add("for (int ", variable, " = 0; ", variable, " < ", count, "; ++", variable, ") {");
  }
};

std::string StorageText(DType dtype);
std::string BufferText(const BufferRef& buffer);      // "in0", "out1", "tmp0"
std::string ReduceOpText(const Stage& stage, int v);  // "CfSum<float>"
std::string ScanOpText(const Stage& stage, int v);

// Loop index names: outer "o0", "o1", ...; inner with `prefix`. With `last_plus_k` the last outer
// one is "(o1 + k)".
std::vector<std::string> OuterNames(const CudaPlan& plan, bool last_plus_k);
std::vector<std::string> InnerNames(const CudaPlan& plan, const std::string& prefix);

// An access with bounds: a condition ("true" when none) and an offset in elements, over the names
// given.
struct BoundedText {
  std::string condition;
  std::string offset;
};
BoundedText BoundedAccessText(const Access& access, const std::vector<std::string>& outer,
                              const std::vector<std::string>& inner);

// "const I i0 = flat / 12;" ... one line per dimension.
void AddCoordinates(CudaLines* lines, const std::string& prefix, const std::string& flat,
                    const std::vector<int64_t>& sizes);

// Writes one kernel. Names in the text: v5 is value 5 (an array over k when it is a row value of
// the column engine), l5 its loaded vectors, x5 an array [u][k] of an element value, b5 and d5
// where a load's and a store's row starts, p5, a5 and s5 the partial, accumulated and shared states
// of a reduce, z5 a load's place in dynamic shared memory, w5 a store's vector, q5 and y5 a run
// sum and what it has lost;
// Op5 is the type of reduce or scan 5, carry5 what a scan carries from tile to tile.
class CudaKernelWriter {
 public:
  CudaKernelWriter(const CudaPlan& plan, std::string name);
  CudaKernelText Write();

 private:
  // What one pass computes, found before any text is written.
  struct PassWork {
    std::set<int> reduces, scans, kept;  // values finished, scanned, put into arrays
    std::vector<size_t> stores, run_sums;
    std::vector<int> loads;
    std::vector<int> segment;  // per value: how many scans come before it
    int segments = 1;
    bool empty = true;
  };

  const Value& value(int v) const { return stage_.values[static_cast<size_t>(v)]; }
  int pass_of(int v) const { return plan_.pass[static_cast<size_t>(v)]; }
  bool element(int v) const { return value(v).space == Space::kElement; }
  bool kept(int v) const { return plan_.kept[static_cast<size_t>(v)]; }
  bool staged(int v) const { return plan_.stage_in_shared[static_cast<size_t>(v)]; }
  bool vector_load(int v) const { return plan_.vector_load[static_cast<size_t>(v)]; }
  bool vector_store(size_t s) const { return plan_.vector_store[s]; }
  bool ragged() const { return plan_.rows % (plan_.rows_per_block * stage_.rows_per_run) != 0; }
  // A vector of the row engine is inside the row as a whole or not at all.
  bool WholeVectors() const { return !plan_.shifted && plan_.length % plan_.vector == 0; }
  bool Compensated(int v) const;
  bool FromShared(int v) const { return staged(v) && loaded_.count(v) != 0; }

  void Parameter(const BufferRef& buffer, DType storage, bool written);
  void Signature();
  void Position();
  void Base(const std::string& name, const Access& access, const std::vector<std::string>& outer);
  void OpenRun();
  void CloseRun();
  void Declarations();
  std::string VectorType(int v) const;
  void DeclareArray(int v);

  // How a value is named inside the k loop; `arrays`: element values that are held in x arrays.
  std::string Ref(int v, const std::set<int>& arrays) const;
  std::string Expression(int v, const std::set<int>& arrays) const;
  std::string OuterIndex(int dim, bool per_k) const;
  std::string Fetch(const Value& x, const std::string& offset) const;
  std::string PerColumn(const Access& access) const;
  std::string Offset(const std::string& base, const Access& access, const std::string& prefix,
                     bool per_k) const;

  void RowValues(int pass);
  void RowStores();
  void OpenU(bool vector_coordinates);
  void OpenK();
  void Loads(const std::vector<int>& loads);
  std::string SharedIndex() const;
  void ScalarLoad(int v);

  PassWork FindWork(int pass) const;
  void Pass(int pass);
  void Segment(const PassWork& work, int segment);
  void ElementValue(int v, const std::set<int>& arrays);
  void ElementStore(size_t s, const std::set<int>& arrays);
  void VectorStore(size_t s);
  void RunSumOf(size_t n, const std::set<int>& arrays);
  void Scan(int v);
  void Accumulate(int v);
  void Finish(const std::set<int>& reduces, bool last);

  const CudaPlan& plan_;
  const Stage& stage_;
  std::string name_;
  std::set<int> live_;
  std::set<int> loaded_;  // kept or staged loads that an earlier pass made
  std::set<int> arrays_;  // kept values that an earlier pass or segment computed
  std::vector<std::string> parameters_;
  CudaLines lines_;
  CudaKernelText result_;
};

}  // namespace cudaforge::rows
