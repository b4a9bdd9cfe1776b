// The layout of one stage on a GPU under one schedule: everything that the kernel text needs,
// without text.
#pragma once

#include <cstdint>
#include <vector>

#include "generators/rows/emit.h"

namespace cudaforge::rows {

// Row engine (kWarp, kBlock, kShared, kLoop): `group` threads work on one row; with run sums, on
// the rows of a run one after the other, at equal positions. Element (chunk, u, t, k) is at
// position ((chunk * unroll + u) * group + t) * vector + k, minus a shift that aligns vectors.
// Column engine (kColumn, kThread): a thread works on `vector` neighbouring rows; `parts` threads
// along y share the inner space: position (chunk * parts + ty) * unroll + u.
struct CudaPlan {
  Stage stage;  // coalesced; outer and inner have at least one dimension
  int64_t rows = 1, length = 1;
  bool column = false;
  int threads = 256;
  int vector = 1;
  int unroll = 1;
  int group = 1;           // row engine: threads per row
  int parts = 1;           // column engine: threads along y
  int rows_per_block = 1;  // runs of rows per block; a run is one row without run sums
  int64_t chunks = 1;
  bool keep = false;     // one chunk: element values may stay in registers between passes
  bool staged = false;   // loads for several passes are staged in dynamic shared memory
  bool full = false;     // every position is inside the row
  bool wide = false;     // indices need 64 bits
  bool shifted = false;  // rows have different alignments: positions are shifted row by row
  std::vector<bool> vector_load;   // per value
  std::vector<bool> vector_store;  // per store
  // If shifted: the load (else -1: shift_store) whose row start determines the shift.
  int shift_value = -1;
  int shift_store = -1;
  // Per value: the pass in which an element value is known, or after which a reduce is.
  std::vector<int> pass;
  int passes = 1;                     // sweeps over the inner space, at least 1
  std::vector<bool> kept;             // per value: an element value kept in an array between passes
  std::vector<bool> stage_in_shared;  // per value

  int parts_per_warp() const { return group < 32 ? 32 / group : 1; }
  bool runs() const { return !stage.run_sums.empty(); }
  // A row's or column's threads are in several warps: states go through shared memory.
  bool crosses_warps() const { return column ? parts > parts_per_warp() : group > 32; }
  // For a reduce or scan: the number of states that its threads share.
  int64_t shared_states(const Value& value) const;
  int64_t blocks() const { return (stage.runs() + rows_per_block - 1) / rows_per_block; }
  int64_t shared_bytes() const;  // dynamic
};

// The coefficient of loop dimension d; coefficient lists may be empty.
inline int64_t Coefficient(const std::vector<int64_t>& coefficients, size_t d) {
  return d < coefficients.size() ? coefficients[d] : 0;
}

// kInvalidArgument: the schedule is out of range or does not suit the stage. A vector that the
// layout does not allow is no error: those accesses use single elements.
Result<CudaPlan> MakeCudaPlan(const Stage& stage, const Schedule& schedule);

}  // namespace cudaforge::rows
