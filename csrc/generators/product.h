// The generator of float32 matrix products: float32's accuracy on Hopper's half-precision tensor
// cores (product_split_sm90.cu explains how).
#pragma once

#include <memory>
#include <string_view>

#include "base/status.h"
#include "generators/generator.h"
#include "signature/op_signature.h"

namespace cudaforge {

// The only target it supports.
inline constexpr std::string_view kProductTarget = "cuda:sm_90a";

// The kernels, for NVRTC: product_split_sm90.cu and product_sm90.cu, in this order, embedded by
// CMake. They read the constants listed at the top of the first.
extern const char* const kProductSplitSource;
extern const char* const kProductSource;

// As in Generator: kNotFound if the region is not a single mm or addmm.
Status CanGenerateProduct(const OpSignature& signature, std::string_view target);
Result<std::unique_ptr<CandidateSearch>> MakeProductSearch(const OpSignature& signature,
                                                           const DeviceArch& arch);

}  // namespace cudaforge
