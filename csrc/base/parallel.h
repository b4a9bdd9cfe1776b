// Multi-threaded loops over large arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace cudaforge {

// Calls body(chunk, begin, end) for each chunk [begin, end) of [0, n), `grain` elements each except
// the last. Uses new threads, at most one per CPU of this process; the calling thread if there is
// one chunk. The chunks depend only on n and grain, so results merged in chunk order are
// reproducible. Rethrows the first exception. REQUIRES: n >= 0, grain > 0.
using ChunkBody = std::function<void(int64_t chunk, int64_t begin, int64_t end)>;
void ParallelChunks(int64_t n, int64_t grain, const ChunkBody& body);
int64_t ChunkCount(int64_t n, int64_t grain);

// memcmp(a, b, bytes) == 0.
bool ParallelEqual(const void* a, const void* b, size_t bytes);

}  // namespace cudaforge
