// The floating-point control words of this thread: rounding, flush to zero, exceptions. A kernel
// that leaves them changed would affect later code.
#pragma once

#include <cstdint>

namespace cudaforge {

// MXCSR without its sticky exception flags (normal arithmetic sets those), and the x87 control
// word. 0 on other processors.
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
