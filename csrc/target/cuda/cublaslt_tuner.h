// "Compiles" candidates of language `library`: times the library's algorithms for a product on the
// device, and chooses one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "target/cuda/cublaslt_product.h"
#include "target/cuda/cuda_context.h"
#include "target/cuda/cuda_timer.h"
#include "target/target.h"

namespace cudaforge {

// Not thread-safe. Keeps the times of the last product, for its other places.
class CublasLtTuner {
 public:
  CublasLtTuner(CudaContextPtr context, std::vector<std::string> search_paths)
      : context_(std::move(context)), search_paths_(std::move(search_paths)) {}

  // Returns the algorithm at the product's place, as a CublasLtBinary. Fails without a library or
  // with fewer algorithms. Takes a second at most, plus the loading of the library. Runs on
  // `stream`, as `timer` does. Resources, under "cublasLtMatmul": "rank" (in the library's own
  // order; null for a variant of its algorithms), "algorithms" (how many were timed),
  // "workspace_bytes", "ns" and "first_ns" (of rank 0). Times are missing if memory is short.
  CompileResult Compile(const std::string& code, CudaTimer& timer, cu::Stream stream);

 private:
  struct Timed {
    lt::Heuristic heuristic = {};
    int rank = 0;            // in the library's own order; -1: a variant
    std::vector<double> ns;  // of its runs
    double median() const;
  };
  class Operands;

  Result<CompileResult> Choose(const LibraryProduct& product, CudaTimer& timer, cu::Stream stream);
  Status Rank(const CublasLtProduct& ready, const LibraryProduct& product, CudaTimer& timer,
              cu::Stream stream);
  // Adds the fastest of `variants` to ranked_, and sorts it.
  Status TimeAll(const CublasLtProduct& ready, const Operands& operands,
                 std::vector<Timed> variants, CudaTimer& timer, cu::Stream stream);

  const CudaContextPtr context_;
  const std::vector<std::string> search_paths_;
  std::string ranked_for_;     // the product without its place
  std::vector<Timed> ranked_;  // the fastest first
  size_t tried_ = 0;           // algorithms that ran
  double first_ns_ = 0;        // of rank 0
};

}  // namespace cudaforge
