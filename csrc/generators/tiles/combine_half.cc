#include "generators/tiles/combine_half.h"

#include <utility>

namespace cudaforge::tiles {

void AddCombine(const Contraction& c, const Tiles& tiles, int64_t in_parts,
                const EpilogueText& epilogue, const LaunchArg& partial, Candidate& candidate) {
  if (in_parts == 0) return;
  candidate.source.code += epilogue.Kernel("combine", "256", "float* __restrict__ partial",
                                           "Combine(epilogue, partial);");
  Launch combine;
  combine.kernel = "combine";
  combine.args = epilogue.Args({partial});
  const int64_t of_thread = c.n % 8 == 0 ? 8 : c.n % 2 == 0 ? 2 : 1;  // kNeighbours
  combine.grid[0] = in_parts * tiles.shape.m * tiles.shape.n / (256 * of_thread);
  combine.block[0] = 256;
  candidate.plan.launches.push_back(std::move(combine));
}

}  // namespace cudaforge::tiles
