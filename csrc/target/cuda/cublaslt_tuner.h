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

  // Returns the algorithm at the product's place as a CublasLtBinary. Resources: "cublasLtMatmul":
  // {"rank": its place in the library's own order, "algorithms": how many were timed,
  // "workspace_bytes", "ns", "first_ns": the time of rank 0}; without times if too little memory
  // is free for operands. Fails if there is no library or no such place. Takes a second at most,
  // plus the loading of the library. Runs on `stream`, as `timer` does.
  CompileResult Compile(const std::string& code, CudaTimer& timer, cu::Stream stream);

 private:
  struct Timed {
    lt::Heuristic heuristic = {};
    int rank = 0;
    std::vector<double> ns;  // of its runs
    double median() const;
  };
  class Operands;

  Result<CompileResult> Choose(const LibraryProduct& product, CudaTimer& timer, cu::Stream stream);
  Status Rank(const CublasLtProduct& ready, const LibraryProduct& product, CudaTimer& timer,
              cu::Stream stream);
  Status TimeAll(const CublasLtProduct& ready, const Operands& operands, CudaTimer& timer,
                 cu::Stream stream);

  const CudaContextPtr context_;
  const std::vector<std::string> search_paths_;
  std::string ranked_for_;     // the product without its place
  std::vector<Timed> ranked_;  // the fastest first
};

}  // namespace cudaforge
