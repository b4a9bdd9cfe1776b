// A product (kernel/library_product.h) as cuBLASLt's descriptors: its algorithms, and its runs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernel/library_product.h"
#include "target/cuda/cublaslt_api.h"
#include "target/cuda/cuda_context.h"

namespace cudaforge {

// The library with its handle for one device.
struct CublasLt {
  lt::Api api;
  lt::Handle handle = nullptr;

  // Opens the library, and makes one handle for each device, which is never destroyed. Leaves the
  // context current. kUnavailable: there is no library, or it refuses the device. Thread-safe.
  static Result<const CublasLt*> For(const CudaContext& context,
                                     const std::vector<std::string>& search_paths);
};

// Device pointers of one run. `c` and `bias` are read if the product has them.
struct ProductBuffers {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;
  const void* bias = nullptr;
  void* d = nullptr;
  void* workspace = nullptr;  // of the algorithm's size, 256-byte aligned
};

// Thread-safe once it is made.
class CublasLtProduct {
 public:
  // kInternal: the library refuses the sizes. `library` must outlive it.
  static Result<CublasLtProduct> Create(const CublasLt& library, const LibraryProduct& product);

  // Up to `most` algorithms with their workspaces, by the library's estimate of their times. They
  // sum in float32 only. kUnsupported: it has none.
  Result<std::vector<lt::Heuristic>> Algorithms(int most) const;
  // The same algorithms with other tiles, clusters and orders of tiles, as far as the library
  // accepts them; at most `most`, those of the first algorithms first. Often a few percent faster.
  std::vector<lt::Heuristic> Variants(std::span<const lt::Heuristic> algorithms, size_t most) const;
  // Checks an algorithm from elsewhere, and returns the bytes of its workspace.
  Result<int64_t> Check(const lt::Algorithm& algorithm) const;
  // Enqueues the product. Its context is current.
  Status Run(const ProductBuffers& buffers, const lt::Algorithm& algorithm, int64_t workspace_bytes,
             cu::Stream stream) const;

 private:
  CublasLtProduct(const CublasLt& library, const LibraryProduct& product)
      : library_(library), product_(product) {}
  Status Init();
  Status SetBias(const void* bias, lt::Description* description) const;
  Status InitLayout(const LibraryMatrix& matrix, uint64_t rows, uint64_t columns,
                    lt::Layout* layout) const;

  const CublasLt& library_;
  LibraryProduct product_;
  float alpha_ = 1, beta_ = 0;
  // In the library's order: columns are contiguous. So it computes the transpose of D from the
  // transposes of B (its first operand) and A.
  lt::Description description_ = {};
  lt::Layout first_ = {}, second_ = {}, c_ = {}, d_ = {};
};

}  // namespace cudaforge
