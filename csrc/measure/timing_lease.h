// Exclusive timing: while a lease lives, no program of the same user takes a timing on this machine
// that would disturb it.
#pragma once

#include <vector>

#include "base/file.h"
#include "signature/op_signature.h"

namespace cudaforge {

// Move-only. On the CPU it covers all cores. On a GPU it covers that GPU and excludes timings on
// the CPU. Work other than timing is not blocked.
class TimingLease {
 public:
  // Waits up to `seconds` for other leases to end, then returns without exclusivity. The same if
  // the lock files (in the user's folder below TMPDIR) cannot be used.
  static TimingLease Take(DeviceType device, int device_index, double seconds);

  bool alone() const { return alone_; }  // false: another lease did not end in time
  double waited_s() const { return waited_s_; }

 private:
  std::vector<FileLock> locks_;
  bool alone_ = true;
  double waited_s_ = 0;
};

}  // namespace cudaforge
