// Loops over large arrays in several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace cudaforge {

// Calls body(chunk, begin, end) for each chunk [begin, end) of [0, n), `grain` elements each but
// the last, in threads that start and end here, at most one for each CPU that this process may use;
// in the calling thread when there is one chunk. The chunks depend on n and grain alone, so results
// merged in the order of chunks are the same on every machine. Rethrows the first exception.
// REQUIRES: n >= 0, grain > 0.
using ChunkBody = std::function<void(int64_t chunk, int64_t begin, int64_t end)>;
void ParallelChunks(int64_t n, int64_t grain, const ChunkBody& body);
int64_t ChunkCount(int64_t n, int64_t grain);

// memcmp(a, b, bytes) == 0.
bool ParallelEqual(const void* a, const void* b, size_t bytes);

}  // namespace cudaforge
