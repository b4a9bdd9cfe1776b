// Loads and runs candidates of language `library`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "target/cuda/cublaslt_api.h"
#include "target/cuda/cuda_context.h"
#include "target/target.h"

namespace cudaforge {

// The binary of a candidate: an algorithm, for one version of the library.
struct CublasLtBinary {
  int64_t version = 0;
  lt::Algorithm algorithm = {};

  std::string Encode() const;  // canonical JSON
  // kCorruption: other bytes.
  static Result<CublasLtBinary> Decode(const std::string& bytes);
};

// Prepares a product. Its scratch buffer is the algorithm's workspace. kNotFound: the binary is for
// another version of the library. kCorruption: a bad binary. kUnavailable: there is no library.
// REQUIRES: candidate.Validate(signature).ok().
Result<std::unique_ptr<Executable>> LoadCublasLt(CudaContextPtr context, const std::string& binary,
                                                 const Candidate& candidate,
                                                 const OpSignature& signature,
                                                 const std::vector<std::string>& search_paths);

}  // namespace cudaforge
