// One stage as C++ text: the common part of the row and column mappings.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "generators/rows/emit.h"
#include "generators/rows/stage_loops.h"
#include "generators/rows/text.h"
#include "kernel/candidate.h"

namespace cudaforge::rows {

// A stage being written: its buffers, sweeps and text so far. Names: loop indices o0, o1, ... and
// i0, i1, ...; constants and row values v7; buffers p0, p1, ... in the order of the launch's
// arguments.
class CpuStage {
 public:
  CpuStage(const Stage& stage, std::string kernel);

  const Stage& stage() const { return stage_; }  // coalesced
  const Value& value(int v) const { return stage_.values[static_cast<size_t>(v)]; }
  int64_t rows() const { return rows_; }
  int64_t row_length() const { return row_length_; }
  bool IsElement(int v) const { return value(v).space == Space::kElement; }
  bool IsReduce(int v) const { return value(v).kind == Value::Kind::kReduce; }
  bool IsScan(int v) const { return value(v).kind == Value::Kind::kScan; }
  bool IsLive(int v) const { return live_[static_cast<size_t>(v)]; }

  // The sweep over the inner space in which a value is first known. A scan's consumers need no
  // sweep of their own.
  int Sweep(int v) const { return sweeps_[static_cast<size_t>(v)]; }
  int sweep_count() const { return sweep_count_; }
  // Reduces, then stores of element values, that need sweep `s`.
  std::vector<int> ReducesOf(int s) const;
  std::vector<size_t> ElementStoresOf(int s) const;
  // Live row values (except constants and reduces) first known before sweep `s`.
  std::vector<int> RowValuesOf(int s) const;
  // Every value that is not an element value.
  const std::set<int>& row_values() const { return row_values_; }

  // Text.
  static std::string Name(int v) { return "v" + std::to_string(v); }
  std::string OuterFlat() const;
  std::string InnerFlat() const;
  // The index text of an unbounded access.
  std::string IndexText(const Access& access) const;
  std::string StoreText(const Store& store, const std::string& value) const;
  // "const float v7 = ...;" for a load, index or pointwise value; operands are named by `name`. A
  // load with bounds takes more lines, and tests them if `checked` is true.
  std::string DefinitionText(int v, const std::string& checked,
                             const std::function<std::string(int)>& name) const;
  // Declarations of the buffers and of the live constants.
  void AddPrologue(Lines* lines) const;
  // Statements that compute o0, o1, ... (the first `count` outer dimensions) from the index `flat`.
  void AddOuterIndices(Lines* lines, const std::string& flat, size_t count) const;

  size_t BufferIndex(const BufferRef& buffer) const;
  Launch MakeLaunch() const;  // kernel and arguments; the mapping sets range and grain
  const std::string& kernel() const { return kernel_; }

 private:
  // "p0[index]", converted to the value's type.
  std::string LoadText(const Value& value, const std::string& index) const;
  std::string BoundedLoadText(int v, const std::string& checked) const;

  Stage stage_;
  std::string kernel_;
  int64_t rows_ = 1;
  int64_t row_length_ = 1;
  std::vector<bool> live_;
  std::vector<int> sweeps_;
  int sweep_count_ = 0;
  std::set<int> row_values_;
  std::vector<BufferRef> buffers_;
  std::vector<DType> storages_;
  std::vector<bool> written_;
  std::vector<bool> read_;
};

// The function's text and its launch.
struct CpuKernel {
  std::string text;
  Launch launch;
};
CpuKernel EmitCpuRows(const CpuStage& stage, const Schedule& schedule);
CpuKernel EmitCpuColumns(const CpuStage& stage, const Schedule& schedule);

// The element values that a kBuffer schedule keeps; empty if it equals kRow.
std::set<int> BufferedValues(const CpuStage& stage);

// "CfSum<float>" and the like, and the type of its tiles.
std::string AccumulatorText(const Stage& stage, const Value& reduce);
Type TileType(const Stage& stage, const Value& value);

inline constexpr int64_t kCpuGrainOps = 16384;

}  // namespace cudaforge::rows
