// KernelOnTrial: a kernel that is run before anybody is served by it.
#pragma once

#include <memory>

#include "dispatch/resolver.h"

namespace cudaforge {

// While one lives, the calls of this thread's OwnWork of its region run its kernel; all other calls
// go on as if it was not there. May be nested. Ends in the thread that it began in.
class KernelOnTrial {
 public:
  // Contract of the kernel: see Resolver::Adopt.
  KernelOnTrial(RegionEntry* entry, std::unique_ptr<Winner> kernel);
  ~KernelOnTrial();
  KernelOnTrial(const KernelOnTrial&) = delete;
  KernelOnTrial& operator=(const KernelOnTrial&) = delete;

  // From now on it serves compiled graphs, eager calls or both.
  void Promote(bool compiled = true, bool eager = true);

  // What a call of this thread's runs: a kernel on trial, else the entry's winner, or null.
  static const Winner* WinnerOf(const RegionEntry& entry);

 private:
  static thread_local const KernelOnTrial* innermost_;

  RegionEntry* const entry_;
  const Winner* const kernel_;
  const KernelOnTrial* const outer_;
};

}  // namespace cudaforge
