// A ring of stages in shared memory, which all threads of a block fill by cp.async and read. Needs
// device/async_copy.cuh. Constants in front: kStages, at least 2, kStageBytes, a multiple of 128,
// kThreads.
enum : int { kFirstConsumer = 0, kConsumers = kThreads };  // all threads multiply

__device__ __forceinline__ void ConsumerBarrier() { __syncthreads(); }
// True for all of them if `mine` is true for one.
__device__ __forceinline__ bool ConsumerBarrierOr(bool mine) { return __syncthreads_or(mine) != 0; }

// Source has Begin(unit): what is copied next are the stages of that unit of work, then those of
// the block's further ones; and Copy(to): the thread's copies of the next stage, or none after the
// last.
template <class Source>
struct Ring {
  unsigned memory;
  Source source;
  unsigned write = 0;  // the stage that is copied next

  // `dynamic`: kStages * kStageBytes bytes, aligned to 128.
  __device__ __forceinline__ Ring(const void* dynamic, const Source& of)
      : memory(static_cast<unsigned>(__cvta_generic_to_shared(dynamic))), source(of) {}

  // REQUIRES: no copy is on its way, no thread reads a stage.
  __device__ __forceinline__ void Begin(int number) {
    source.Begin(number);
    write = 0;
#pragma unroll 1
    for (int i = 0; i < kStages - 1; ++i) Put();
  }

  // The address of the next stage, for all threads. Copies go to the one that it was before, which
  // no thread may read any more.
  __device__ __forceinline__ unsigned Next() {
    AsyncWait<kStages - 2>();
    __syncthreads();
    Put();
    return memory + LastOffset();  // of all stages the one that was copied first
  }
  // Where the stage is that Next() returned last. After a barrier it can serve other purposes until
  // Next() is called.
  __device__ __forceinline__ unsigned LastOffset() const { return write * kStageBytes; }

  // Ends all copies, so that the memory can serve other purposes until Begin().
  static __device__ __forceinline__ void Drain() {
    AsyncWait<0>();
    __syncthreads();
  }

 private:
  __device__ __forceinline__ void Put() {
    source.Copy(memory + write * kStageBytes);
    AsyncCommit();
    if (++write == kStages) write = 0;
  }
};

// Rows of 32 halves along k, 64 bytes each: the 16-byte piece p of row r is at piece p ^ (r / 2 %
// 4). So eight neighbouring rows are in different banks, and 16 of k further is the address ^ 32.
__device__ __forceinline__ unsigned RowsOf32(unsigned row, unsigned piece) {
  return row * 64 + (piece ^ row / 2 % 4) * 16;
}
// What a lane names of 16 rows and 16 of k for LoadMatrices: of A, whose fragments are 16 rows; of
// B, where they are two blocks of 8 columns.
__device__ __forceinline__ unsigned LaneOfRowsA(unsigned row) {
  const unsigned lane = threadIdx.x % 32;
  return RowsOf32(row + lane % 16, lane / 16);
}
__device__ __forceinline__ unsigned LaneOfRowsB(unsigned row) {
  const unsigned lane = threadIdx.x % 32;
  return RowsOf32(row + lane % 8 + lane / 16 * 8, lane / 8 % 2);
}

// 32 rows of one k each: `rows` rows of a matrix, 2 * rows bytes. The 16-byte piece p of row k is
// at piece p ^ (k % 8): 16 of k further is the address + 32 * rows.
__device__ __forceinline__ unsigned RowsOfOneK(unsigned k, unsigned piece, unsigned rows) {
  return k * rows * 2 + (piece ^ k % 8) * 16;
}
// As above for LoadTransposed; `row` is a multiple of 32, and 16 rows further is the address ^ 32.
__device__ __forceinline__ unsigned LaneOfOneKA(unsigned row, unsigned rows) {
  const unsigned lane = threadIdx.x % 32;
  return RowsOfOneK(lane % 8 + lane / 16 * 8, row / 8 + lane / 8 % 2, rows);
}
__device__ __forceinline__ unsigned LaneOfOneKB(unsigned row, unsigned rows) {
  const unsigned lane = threadIdx.x % 32;
  return RowsOfOneK(lane % 16, row / 8 + lane / 16, rows);
}
