// The text at the top of every CPU kernel: scalar functions that g++ can vectorise, conversions of
// half types, and the accumulators for tiles. Self-contained C++20 for g++ and clang++.
#pragma once

#include <string>

namespace cudaforge::rows {

// Accumulators of a row, which take tiles of at most kCpuTile elements. They start with the
// identity.
//   CfSum<T>, CfProd<T>, CfMax<T>, CfMin<T>, CfArgMax<T>, CfArgMin<T>, CfAny, CfAll:
//     void Tile(const T* p, int64_t n, int64_t first)  elements [first, first + n) of the row
//     Result()                                         of the row so far
//   CfScanSum<T>, CfScanProd<T>: void Tile(T* p, int64_t n), in place, continuing earlier tiles.
const char* CpuTilePrelude();

inline constexpr int kCpuTile = 1024;

std::string CpuPrelude();

}  // namespace cudaforge::rows
