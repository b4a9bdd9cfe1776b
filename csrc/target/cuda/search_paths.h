// Where the CUDA libraries and headers may be, in the order tried:
//   1. $CUDAFORGE_CUDA_PATH (colon-separated folders: a toolkit's root, or PyPI's
//      site-packages/nvidia/cu13),
//   2. folders of the same kind given by the caller,
//   3. $CUDA_HOME, $CUDA_PATH,
//   4. /usr/local/cuda,
//   5. for libraries, the loader's own path.
#pragma once

#include <string>
#include <vector>

#include "base/dynamic_library.h"
#include "base/status.h"

namespace cudaforge {

// The roots of 1 to 4 that exist, without repetition.
std::vector<std::string> CudaRoots(const std::vector<std::string>& given);

// Paths to try for a library: ROOT/{lib64,lib,extras/CUPTI/lib64}/SONAME for each root that has it,
// then SONAME itself.
std::vector<std::string> CudaLibraryCandidates(const std::vector<std::string>& given,
                                               const std::vector<std::string>& sonames);

// What the libraries are called, the newest release first.
const std::vector<std::string>& NvrtcSonames();
const std::vector<std::string>& NvJitLinkSonames();
const std::vector<std::string>& CuptiSonames();

// Keeps the first of these that opens loaded, for a table of its functions. kUnavailable calls it
// `name` ("NVRTC") and says that `package` of PyPI has it.
Result<SymbolLoader> OpenCudaLibrary(const std::vector<std::string>& given,
                                     const std::vector<std::string>& sonames, const char* name,
                                     const char* package);

// kUnavailable where a required function is missing; `oldest`: the first release that has them all.
Status CheckComplete(const SymbolLoader& load, const char* oldest);

// Header folders of the first root that has cuda_fp16.h: include, and include/cccl where it exists.
// Empty when none.
std::vector<std::string> CudaIncludeDirs(const std::vector<std::string>& given);

}  // namespace cudaforge
