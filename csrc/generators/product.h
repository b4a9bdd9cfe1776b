// The generator of float32 matrix products: results of float32's accuracy from Hopper's
// half-precision tensor cores (product_split_sm90.cu says how).
#pragma once

#include <memory>
#include <string_view>

#include "base/status.h"
#include "generators/generator.h"
#include "signature/op_signature.h"

namespace cudaforge {

// The only target that it makes kernels for.
inline constexpr std::string_view kProductTarget = "cuda:sm_90a";

// The kernels, for NVRTC: product_split_sm90.cu and product_sm90.cu, in this order, which CMake
// makes part of the program. They read the constants that are named at the top of the first.
extern const char* const kProductSplitSource;
extern const char* const kProductSource;

// As of Generator: kNotFound where the region is no mm or addmm by itself.
Status CanGenerateProduct(const OpSignature& signature, std::string_view target);
Result<std::unique_ptr<CandidateSearch>> MakeProductSearch(const OpSignature& signature,
                                                           const DeviceArch& arch);

}  // namespace cudaforge
