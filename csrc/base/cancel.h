// A request to stop that one thread, or a signal handler, makes of another.
#pragma once

#include <atomic>

namespace cudaforge {

// Whoever works looks at it often; whoever wants an end sets it. It stays set. Thread-safe, and Set
// is safe in a signal handler. Passed by reference: it must outlive the work.
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
