// Folders of the CUDA libraries and headers, in search order:
// 1. $CUDAFORGE_CUDA_PATH (colon-separated: a toolkit's root, or site-packages/nvidia/cu13 of PyPI)
// 2. folders of the same kind given by the caller
// 3. $CUDA_HOME, $CUDA_PATH
// 4. /usr/local/cuda
// 5. for libraries, the loader's own path
#pragma once

#include <string>
#include <vector>

#include "base/dynamic_library.h"
#include "base/status.h"

namespace cudaforge {

// The existing roots of 1 to 4, without duplicates.
std::vector<std::string> CudaRoots(const std::vector<std::string>& given);

// Paths to try for a library: ROOT/{lib64,lib,extras/CUPTI/lib64}/SONAME for each root that has it,
// then SONAME.
std::vector<std::string> CudaLibraryCandidates(const std::vector<std::string>& given,
                                               const std::vector<std::string>& sonames);

// Names of the libraries, the newest release first.
const std::vector<std::string>& NvrtcSonames();
const std::vector<std::string>& NvJitLinkSonames();
const std::vector<std::string>& CuptiSonames();
const std::vector<std::string>& CublasLtSonames();

// Opens the first of these that works, and keeps it loaded. kUnavailable: the message calls it
// `name` ("NVRTC") and names `package` of PyPI.
Result<SymbolLoader> OpenCudaLibrary(const std::vector<std::string>& given,
                                     const std::vector<std::string>& sonames, const char* name,
                                     const char* package);

// kUnavailable: a required function is missing. `oldest`: the first release that has all.
Status CheckComplete(const SymbolLoader& load, const char* oldest);

// Header folders of the first root with cuda_fp16.h: include, and include/cccl if it exists. Empty
// if there is none.
std::vector<std::string> CudaIncludeDirs(const std::vector<std::string>& given);

}  // namespace cudaforge
