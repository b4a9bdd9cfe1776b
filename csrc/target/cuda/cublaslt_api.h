// cuBLASLt as a table of function pointers, opened at run time. Declares the used parts of
// cublasLt.h (values as in CUDA 12 and 13), so that a build needs no CUDA toolkit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "target/cuda/driver_api.h"

namespace cudaforge::lt {

using Result = int;  // cublasStatus_t; 0: success
using Handle = struct HandleTag*;

// Opaque, initialised in place, copied as bytes.
struct Layout {
  uint64_t data[8];
};
struct Description {
  uint64_t data[32];
};
struct Preference {
  uint64_t data[8];
};
// May be stored, and used with the same version of the library.
struct Algorithm {
  uint64_t data[8];
};

struct Heuristic {  // cublasLtMatmulHeuristicResult_t
  Algorithm algorithm;
  size_t workspace_bytes;
  Result state;  // the other fields are valid if 0
  float waves;
  int reserved[4];
};
static_assert(sizeof(Heuristic) == 96);

// cudaDataType_t
inline constexpr int kFloat32 = 0, kFloat16 = 2, kBFloat16 = 14;
// cublasComputeType_t
inline constexpr int kComputeFloat32 = 68, kComputeTf32 = 77;

// cublasLtMatmulDescAttributes_t
inline constexpr int kTransA = 3, kTransB = 4, kEpilogue = 7, kBiasPointer = 8;
inline constexpr int32_t kTransposed = 1;  // CUBLAS_OP_T
// cublasLtEpilogue_t
inline constexpr uint32_t kEpilogueNone = 1, kEpilogueBias = 4;
// cublasLtMatrixLayoutAttribute_t
inline constexpr int kBatchCount = 5, kBatchStride = 6;
// cublasLtMatmulPreferenceAttributes_t
inline constexpr int kMaxWorkspace = 1, kReductionSchemes = 3, kAlignmentA = 5, kAlignmentB = 6,
                     kAlignmentC = 7, kAlignmentD = 8;
// cublasLtMatmulAlgoConfigAttributes_t: uint32_t, the cluster uint16_t
inline constexpr int kTile = 1, kSwizzling = 4, kCluster = 8;
// cublasLtClusterShape_t
inline constexpr uint16_t kClusterAuto = 0, kCluster1x1 = 2, kCluster2x1 = 3, kCluster4x1 = 4,
                          kCluster1x2 = 5, kCluster2x2 = 6, kCluster1x4 = 8;
// cublasLtReductionScheme_t: partial sums in the type of the sums, in the workspace. The others sum
// in the output's type.
inline constexpr uint32_t kReduceInComputeType = 2;

struct Api {
  // kUnavailable, with advice: the library or one of its functions is missing. See
  // cuda/search_paths.h.
  static ::cudaforge::Result<Api> Open(const std::vector<std::string>& search_paths);

  // Ok for 0. Else kInternal: "what: CUBLAS_STATUS_NAME".
  Status Check(Result result, const char* what) const;

  std::string path;  // of the library, which is never unloaded

  size_t (*GetVersion)() = nullptr;
  Result (*Create)(Handle* handle) = nullptr;
  Result (*LayoutInit)(Layout* layout, size_t bytes, int type, uint64_t rows, uint64_t columns,
                       int64_t lead) = nullptr;
  Result (*LayoutSet)(Layout* layout, int attribute, const void* value, size_t bytes) = nullptr;
  Result (*DescriptionInit)(Description* description, size_t bytes, int compute_type,
                            int scale_type) = nullptr;
  Result (*DescriptionSet)(Description* description, int attribute, const void* value,
                           size_t bytes) = nullptr;
  Result (*PreferenceInit)(Preference* preference, size_t bytes) = nullptr;
  Result (*PreferenceSet)(Preference* preference, int attribute, const void* value,
                          size_t bytes) = nullptr;
  Result (*GetHeuristic)(Handle handle, const Description* description, const Layout* a,
                         const Layout* b, const Layout* c, const Layout* d,
                         const Preference* preference, int most, Heuristic* found,
                         int* count) = nullptr;
  Result (*AlgorithmCheck)(Handle handle, const Description* description, const Layout* a,
                           const Layout* b, const Layout* c, const Layout* d,
                           const Algorithm* algorithm, Heuristic* result) = nullptr;
  Result (*AlgorithmGet)(const Algorithm* algorithm, int attribute, void* value, size_t bytes,
                         size_t* written) = nullptr;
  Result (*AlgorithmSet)(Algorithm* algorithm, int attribute, const void* value,
                         size_t bytes) = nullptr;
  Result (*Matmul)(Handle handle, const Description* description, const void* alpha, const void* a,
                   const Layout* a_layout, const void* b, const Layout* b_layout, const void* beta,
                   const void* c, const Layout* c_layout, void* d, const Layout* d_layout,
                   const Algorithm* algorithm, void* workspace, size_t workspace_bytes,
                   cu::Stream stream) = nullptr;
  const char* (*GetStatusName)(Result result) = nullptr;
};

// The version of the library that Open would open ("130002"), or "" without one. Opens it.
std::string Version(const std::vector<std::string>& search_paths);

}  // namespace cudaforge::lt
