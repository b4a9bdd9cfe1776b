// A request to stop, from another thread or a signal handler.
#pragma once

#include <atomic>

namespace cudaforge {

// The code that does the work checks it often. Once set, it stays set. Thread-safe, and Set is safe
// in a signal handler. Must outlive the work, to which it is passed by reference.
class Cancel {
 public:
  Cancel() = default;
  Cancel(const Cancel&) = delete;
  Cancel& operator=(const Cancel&) = delete;

  void Set() noexcept { set_.store(true); }
  bool IsSet() const noexcept { return set_.load(); }

 private:
  std::atomic<bool> set_ = false;
  static_assert(std::atomic<bool>::is_always_lock_free);
};

}  // namespace cudaforge
