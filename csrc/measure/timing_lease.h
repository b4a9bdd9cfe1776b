// Times are taken alone: while a lease lives, no other program of the same user takes one on this
// machine that it would disturb.
#pragma once

#include <vector>

#include "base/file.h"
#include "signature/op_signature.h"

namespace cudaforge {

// Move-only. On the CPU it is for all cores. On a GPU it is for that GPU: several may be timed at
// once, but nothing on the CPU meanwhile. Work other than timing is not held off.
class TimingLease {
 public:
  // Waits up to `seconds` for others to end theirs, and does without them after that, or where the
  // lock files cannot be had: in a folder of the user's own below TMPDIR.
  static TimingLease Take(DeviceType device, int device_index, double seconds);

  bool alone() const { return alone_; }  // false: another one's was not over in time
  double waited_s() const { return waited_s_; }

 private:
  std::vector<FileLock> locks_;
  bool alone_ = true;
  double waited_s_ = 0;
};

}  // namespace cudaforge
