// Names and fragments of the kernel text; internal to rows/cuda.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "generators/rows/cuda/kernel.h"
#include "generators/rows/cuda/plan.h"
#include "generators/rows/text.h"

namespace cudaforge::rows {

class CudaLines : public Lines {
 public:
  // `count`: a number or a name.
  template <typename Count>
  void Unroll(const std::string& variable, const Count& count) {
    Add("#pragma unroll");
    Add("for (int ", variable, " = 0; ", variable, " < ", count, "; ++", variable, ") {");
  }
};

std::string StorageText(DType dtype);
std::string BufferText(const BufferRef& buffer);      // "in0", "out1", "tmp0"
std::string ReduceOpText(const Stage& stage, int v);  // "CfSum<float>"
std::string ScanOpText(const Stage& stage, int v);

// Loop index names: outer "o0", "o1", ...; inner with `prefix`. With `last_plus_k` the last outer
// name is "(o1 + k)".
std::vector<std::string> OuterNames(const CudaPlan& plan, bool last_plus_k);
std::vector<std::string> InnerNames(const CudaPlan& plan, const std::string& prefix);

// An access with bounds over the names given: a condition ("true" if none) and an offset in
// elements.
struct BoundedText {
  std::string condition;
  std::string offset;
};
BoundedText BoundedAccessText(const Access& access, const std::vector<std::string>& outer,
                              const std::vector<std::string>& inner);

// "const I i0 = flat / 12;" ... one line per dimension.
void AddCoordinates(CudaLines* lines, const std::string& prefix, const std::string& flat,
                    const std::vector<int64_t>& sizes);

// Writes one kernel. Names in the text, for value 5: v5 the value (a row value of the column
// engine: an array over k); l5 its loaded vectors; x5 an array [u][k] of an element value; b5, d5
// where a load's and a store's row starts; p5, a5, s5, Op5 a reduce's partial, accumulated and
// shared states, and its type; carry5 what a scan carries from tile to tile; z5 a load's place in
// dynamic shared memory; w5 a store's vector; q5, y5 a run sum and its lost low-order bits.
class CudaKernelWriter {
 public:
  CudaKernelWriter(const CudaPlan& plan, std::string name);
  CudaKernelText Write();

 private:
  // The work of one pass, planned before any text is written.
  struct PassWork {
    std::set<int> reduces, scans, kept;  // values finished, scanned, stored in arrays
    std::vector<size_t> stores, run_sums;
    std::vector<int> loads;
    std::vector<int> segment;  // per value: the number of scans before it
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
  // Each vector of the row engine is entirely inside or outside the row.
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

  // The name of a value inside the k loop; `arrays`: element values in x arrays.
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
