// How one stage is laid out on a GPU under one schedule: everything the kernel text needs to know,
// and nothing of text.
//
// Row engine (kWarp, kBlock, kShared, kLoop): a group of `group` threads works on one row;
// element (chunk, u, t, k) of the row is at position ((chunk * unroll + u) * group + t) * vector +
// k, minus a shift that makes vectors aligned. With run sums a group works on the rows of a run one
// after the other, each thread at the same positions in all of them. Column engine (kColumn,
// kThread): a thread works on `vector` neighbouring rows; `parts` threads along y share the inner
// space: position (chunk * parts + ty) * unroll + u.
#pragma once

#include <cstdint>
#include <vector>

#include "generators/emit.h"

namespace cudaforge::rows {

struct CudaPlan {
  Stage stage;  // coalesced; outer and inner have at least one dimension
  int64_t rows = 1, length = 1;
  bool column = false;
  int threads = 256;
  int vector = 1;
  int unroll = 1;
  int group = 1;           // row engine: threads per row
  int parts = 1;           // column engine: threads along y
  int rows_per_block = 1;  // runs of rows covered by one block, of one row each without run sums
  int64_t chunks = 1;
  bool keep = false;     // one chunk: element values may stay in registers between passes
  bool staged = false;   // loads that several passes use are staged in dynamic shared memory
  bool full = false;     // every position is inside the row
  bool wide = false;     // indices need 64 bits
  bool shifted = false;  // rows start at varying alignments: positions are shifted row by row
  std::vector<bool> vector_load;   // per value
  std::vector<bool> vector_store;  // per store
  // When shifted: a load (else -1: shift_store) whose row start gives the shift.
  int shift_value = -1;
  int shift_store = -1;
  // Per value: the pass in which an element value, or after which a reduce, is known.
  std::vector<int> pass;
  int passes = 1;          // sweeps over the inner space, at least 1
  std::vector<bool> kept;  // per value: an element value that stays in an array between passes
  std::vector<bool> stage_in_shared;  // per value

  int parts_per_warp() const { return group < 32 ? 32 / group : 1; }
  bool runs() const { return !stage.run_sums.empty(); }
  // The threads of a row, or of a column, are in several warps: states go through shared memory.
  bool crosses_warps() const { return column ? parts > parts_per_warp() : group > 32; }
  // Of a reduce or a scan: how many states its threads share.
  int64_t shared_states(const Value& value) const;
  int64_t blocks() const { return (stage.runs() + rows_per_block - 1) / rows_per_block; }
  int64_t shared_bytes() const;  // dynamic
};

// The coefficient of loop dimension d; coefficient lists may be empty.
inline int64_t Coefficient(const std::vector<int64_t>& coefficients, size_t d) {
  return d < coefficients.size() ? coefficients[d] : 0;
}

// kInvalidArgument: the schedule is out of range or does not suit the stage. A vector that the
// layout does not allow is not an error: those accesses are made element by element.
Result<CudaPlan> MakeCudaPlan(const Stage& stage, const Schedule& schedule);

}  // namespace cudaforge::rows
