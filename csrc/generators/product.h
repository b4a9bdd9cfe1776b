// The generator of float32 matrix products: results of float32's accuracy from Hopper's
// half-precision tensor cores (product_sm90.cu says how).
#pragma once

#include <memory>
#include <string_view>

#include "base/status.h"
#include "generators/generator.h"
#include "signature/op_signature.h"

namespace cudaforge {

// The only target that it makes kernels for.
inline constexpr std::string_view kProductTarget = "cuda:sm_90a";

// The kernels, for NVRTC: product_sm90.cu, which CMake makes part of the program. They read the
// constants that are named at its top.
extern const char* const kProductSource;

// kUnsupported: the region is no such product, or none for `target`.
Status CanGenerateProduct(const OpSignature& signature, std::string_view target);

// REQUIRES: CanGenerateProduct(signature, target).
std::unique_ptr<CandidateSearch> MakeProductSearch(const OpSignature& signature);

}  // namespace cudaforge
