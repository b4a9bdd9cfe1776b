// The generator of candidates that are products by NVIDIA's library.
#pragma once

#include <memory>
#include <string_view>

#include "base/status.h"
#include "generators/generator.h"
#include "signature/op_signature.h"

namespace cudaforge::library {

// As in Generator: kNotFound if the region is not around one matrix product.
Status CanGenerateLibraryProduct(const OpSignature& signature, std::string_view target);
// The worker times the library's algorithms once, when it compiles the first candidate (language
// kLibrary). The candidates are the fastest of them: few, because their verification takes longer.
Result<std::unique_ptr<CandidateSearch>> MakeLibrarySearch(const OpSignature& signature,
                                                           const DeviceArch& arch);

}  // namespace cudaforge::library
