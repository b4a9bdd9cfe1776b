// The text at the top of every CPU kernel: scalar functions that g++ vectorises, conversions of
// half types, and the accumulators that the emitted loops hand their tiles to. Self-contained C++20
// for g++ and clang++.
#pragma once

#include <string>

namespace cudaforge::rows {

// Accumulators of a row, fed with tiles of at most kCpuTile elements; constructed with the
// identity.
//   CfSum<T>, CfProd<T>, CfMax<T>, CfMin<T>, CfArgMax<T>, CfArgMin<T>, CfAny, CfAll:
//     void Tile(const T* p, int64_t n, int64_t first)  elements [first, first + n) of the row
//     Result()                                         of the row so far
//   CfScanSum<T>, CfScanProd<T>: void Tile(T* p, int64_t n), in place, continuing the tiles before.
const char* CpuTilePrelude();

inline constexpr int kCpuTile = 1024;

std::string CpuPrelude();

}  // namespace cudaforge::rows
