// KernelOnTrial: a loaded kernel that only CudaForge's own calls run, until it is promoted.
#pragma once

#include <memory>

#include "dispatch/resolver.h"

namespace cudaforge {

// While an object lives, OwnWork of its thread runs this kernel for its region. No other call is
// affected. Can be nested. Must be destroyed in the thread that made it.
class KernelOnTrial {
 public:
  // For the requirements on `kernel` see Resolver::Adopt.
  KernelOnTrial(RegionEntry* entry, std::unique_ptr<Winner> kernel);
  ~KernelOnTrial();
  KernelOnTrial(const KernelOnTrial&) = delete;
  KernelOnTrial& operator=(const KernelOnTrial&) = delete;

  // Makes the kernel serve compiled graphs, eager calls or both.
  void Promote(bool compiled = true, bool eager = true);

  // Returns what a call in this thread runs: the kernel on trial, else the entry's winner, or null.
  static const Winner* WinnerOf(const RegionEntry& entry);

 private:
  static thread_local const KernelOnTrial* innermost_;

  RegionEntry* const entry_;
  const Winner* const kernel_;
  const KernelOnTrial* const outer_;
};

}  // namespace cudaforge
