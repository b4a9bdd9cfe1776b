// Whose ATen calls these are: those that CudaForge makes itself, to judge and to time kernels, are
// to run PyTorch's own kernels even where calls are intercepted; and so are those that are a part
// of a call that was looked up.
#pragma once

namespace cudaforge {

// While one lives, the calls of this thread are CudaForge's own. May be nested.
class OwnWork {
 public:
  OwnWork() { ++depth_; }
  ~OwnWork() { --depth_; }
  OwnWork(const OwnWork&) = delete;
  OwnWork& operator=(const OwnWork&) = delete;

  static bool InForce() { return depth_ > 0; }

 private:
  static inline thread_local int depth_ = 0;
};

}  // namespace cudaforge
