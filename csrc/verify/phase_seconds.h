// Where the time of a verification goes.
#pragma once

namespace cudaforge {

// Seconds by phase, of all candidates of one region.
struct PhaseSeconds {
  double inputs = 0;   // drawing inputs, ATen's answers on them
  double compile = 0;  // waiting for compilers
  double run = 0;      // candidates: loading, running, timing and profiling them
  double compare = 0;  // what they wrote
};

}  // namespace cudaforge
