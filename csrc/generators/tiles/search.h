// The generator of kernels around matrix products.
#pragma once

#include <memory>
#include <string_view>

#include "base/status.h"
#include "generators/generator.h"
#include "signature/op_signature.h"

namespace cudaforge::tiles {

inline constexpr std::string_view kHopperTarget = "cuda:sm_90a";

// Returns true for the targets that it supports: "cuda:sm_90a", and those of IsMmaTarget.
bool IsProductTarget(std::string_view target);

// As in Generator: kNotFound if the region is not around one matrix product.
Status CanGenerateProduct(const OpSignature& signature, std::string_view target);
Result<std::unique_ptr<CandidateSearch>> MakeProductSearch(const OpSignature& signature,
                                                           const DeviceArch& arch);

}  // namespace cudaforge::tiles
