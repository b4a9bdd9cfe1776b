// The time of a verification by phase.
#pragma once

namespace cudaforge {

// Seconds by phase, of all candidates of one region.
struct PhaseSeconds {
  double inputs = 0;   // drawing inputs, and ATen's answers to them
  double compile = 0;  // waiting for compilers
  double run = 0;      // loading, running, timing and profiling candidates
  double compare = 0;  // comparing their outputs
};

}  // namespace cudaforge
