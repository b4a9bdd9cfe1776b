#include "base/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"

namespace cudaforge {
namespace {

constexpr int64_t kCompareGrain = 4 << 20;

// The number of CPUs that this process may use; at least 1.
int UsableCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(CPU_COUNT(&set), 1);
}

}  // namespace

int64_t ChunkCount(int64_t n, int64_t grain) {
  CF_CHECK(n >= 0 && grain > 0);
  return n / grain + (n % grain != 0 ? 1 : 0);
}

void ParallelChunks(int64_t n, int64_t grain, const ChunkBody& body) {
  const int64_t chunks = ChunkCount(n, grain);
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  std::exception_ptr thrown;
  const auto work = [&] {
    for (int64_t chunk = next++; chunk < chunks; chunk = next++) {
      try {
        body(chunk, chunk * grain, std::min((chunk + 1) * grain, n));
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (thrown == nullptr) thrown = std::current_exception();
        next = chunks;
      }
    }
  };
  std::vector<std::thread> threads;
  const int64_t helpers = std::min<int64_t>(chunks, UsableCpus()) - 1;
  try {
    for (int64_t i = 0; i < helpers; ++i) threads.emplace_back(work);
  } catch (const std::system_error&) {
    // No more threads are available: the existing ones do the work.
  }
  work();
  for (std::thread& thread : threads) thread.join();
  if (thrown != nullptr) std::rethrow_exception(thrown);
}

bool ParallelEqual(const void* a, const void* b, size_t bytes) {
  std::atomic<bool> equal{true};
  ParallelChunks(
      static_cast<int64_t>(bytes), kCompareGrain, [&](int64_t, int64_t begin, int64_t end) {
        if (!equal.load(std::memory_order_relaxed)) return;
        if (std::memcmp(static_cast<const char*>(a) + begin, static_cast<const char*>(b) + begin,
                        static_cast<size_t>(end - begin)) != 0) {
          equal = false;
        }
      });
  return equal;
}

}  // namespace cudaforge
