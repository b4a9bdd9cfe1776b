// How one run of a candidate is watched.
#pragma once

#include <cstdint>

namespace cudaforge {

struct RunPlan {
  // Where the memory beside every buffer ends the process when it is touched, be it read only, and
  // not merely shows afterwards that it was written to. On targets whose buffers can be placed so
  // (the CPU); else as kNone.
  enum class Fence { kNone, kBefore, kAfter };

  uint8_t poison = 0xff;  // what outputs and scratch hold before the run
  Fence fence = Fence::kNone;
  // Runs twice on the same buffers, and spoils a few bytes of the outputs in between: a candidate
  // must not rely on what is there, even where nearly all of it is right.
  bool again = false;
  // Host code is launched from a new thread; the second of two runs always is. It is served on any
  // thread, and could tell by its stack that this is the worker's first.
  bool new_thread = false;
};

}  // namespace cudaforge
