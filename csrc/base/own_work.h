// Marks ATen calls that CudaForge makes itself, to judge and time kernels. They are not intercepted
// and run PyTorch's own kernels; so do calls inside an intercepted call. Compiled regions called
// meanwhile run their kernels, a kernel on trial included.
#pragma once

namespace cudaforge {

// While an object lives, the ATen calls of this thread are CudaForge's own. Can be nested.
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
