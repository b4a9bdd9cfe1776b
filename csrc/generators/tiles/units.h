// How the tiles of a product are shared out among blocks: units.cuh goes through the same units.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "generators/tiles/contraction.h"
#include "kernel/candidate.h"

namespace cudaforge::tiles {

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct TileShape {
  int64_t m = 128, n = 128, k = 64;
  bool operator==(const TileShape&) const = default;
};

struct Tiles {
  Tiles(const Contraction& c, const TileShape& shape);

  // The tiles that are one unit of work each. With parts, those that fill whole waves of blocks;
  // each of the others is `parts` units along k.
  int64_t whole(int64_t parts, int64_t multiprocessors) const {
    return parts == 1 ? all : all / multiprocessors * multiprocessors;
  }
  int64_t units(int64_t parts, int64_t multiprocessors) const {
    const int64_t whole_tiles = whole(parts, multiprocessors);
    return whole_tiles + (all - whole_tiles) * parts;
  }
  // Bytes of the sums of parts, in float32.
  int64_t PartialBytes(int64_t parts, int64_t multiprocessors) const;
  // The time of all, in steps of a block, with one block a multiprocessor.
  int64_t Time(int64_t parts, int64_t multiprocessors) const;
  // Numbers of parts worth trying: up to `most` whose time is within a tenth of the best guess,
  // best first, and 1.
  std::vector<int64_t> PartCounts(int64_t multiprocessors, size_t most) const;

  TileShape shape;
  int64_t m, n, steps;             // tiles along m and n, steps along k
  int64_t matrices_a, matrices_b;  // 1 if all of the batch have the same
  int64_t batch;
  int64_t all;  // tiles of all matrices
};

struct PipelineShape {
  int64_t stages = 0;
  int64_t stage_bytes = 0;
  int64_t groups = 2;  // warpgroups that share a tile

  int64_t shared_bytes() const { return stages * stage_bytes + 1024; }  // aligned to 1024
};

// The constants of units.cuh and of pipeline_sm90.cuh or mma_ring.cuh.
std::string PipelineConstants(const Contraction& c, const Tiles& tiles, int64_t parts,
                              int64_t multiprocessors, const PipelineShape& pipeline);
// "enum : int { NAME = VALUE };". No variable: NVRTC puts one that is zero into memory, which
// kernels may not have.
std::string ConstantText(const char* name, int64_t value);

// kABatch, kBBatch; kARow, kBRow, kAStep, kBStep: elements from a matrix of an operand to the next,
// from a row of A or column of B to the next, and along k.
std::string StrideConstants(const Operand& a, const Operand& b);

// An argument that is a buffer or a tensor map.
LaunchArg ArgAt(LaunchArg::Kind kind, int index);

// Of A, and columns of B, for kernels whose tiles have many of both.
constexpr int64_t kLeastRows = 64;
inline bool HasFewRows(const Contraction& c) { return c.m < kLeastRows || c.n < kLeastRows; }

// kUnsupported: too large for the kernels' 32-bit indices, or too small to be worth them.
Status CheckSizes(const Contraction& c, const TileShape& shape, int64_t least_k);

}  // namespace cudaforge::tiles
