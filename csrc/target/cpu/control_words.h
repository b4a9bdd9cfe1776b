// The words that say how this thread's floating-point unit rounds, what it flushes to zero and
// which exceptions it raises. A kernel that leaves them changed changes what later code computes.
#pragma once

#include <cstdint>

namespace cudaforge {

// MXCSR without its sticky exception flags, which honest arithmetic sets, and the x87 control word.
// On other processors both are 0.
struct ControlWords {
  uint32_t mxcsr = 0;
  uint16_t x87 = 0;

  bool operator==(const ControlWords&) const = default;

  static ControlWords Read() {
    ControlWords words;
#if defined(__x86_64__)
    asm volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(words.mxcsr), "=m"(words.x87));
    words.mxcsr &= ~kFlags;
#endif
    return words;
  }
  void Restore() const {
#if defined(__x86_64__)
    asm volatile("ldmxcsr %0\n\tfldcw %1" : : "m"(mxcsr), "m"(x87));
#endif
  }

 private:
  static constexpr uint32_t kFlags = 0x3f;
};

}  // namespace cudaforge
