// How a thread has four neighbours of a row among its sums, which tensor cores give it in pairs:
// a tile holds the columns of B in another order, each 16 in 16 slots. A thread with lane % 4 = q
// has columns 4 q to 4 q + 3, in slots 2 q, 2 q + 1, 2 q + 8 and 2 q + 9. After tiles/units.cuh.
__device__ __forceinline__ int SlotOfColumn(int column) {
  return column / 16 * 16 + column % 4 / 2 * 8 + column % 16 / 4 * 2 + column % 2;
}
__device__ __forceinline__ int ColumnOfSlot(int slot) {
  return slot / 16 * 16 + slot % 8 / 2 * 4 + slot % 16 / 8 * 2 + slot % 2;
}

// Neighbours that the epilogue takes at once.
constexpr int kNeighbours = kN % 4 == 0 ? 4 : kN % 2 == 0 ? 2 : 1;
