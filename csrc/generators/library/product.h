// Regions that are one call of NVIDIA's library: a matrix product with what its epilogue computes.
#pragma once

#include "base/status.h"
#include "kernel/library_product.h"
#include "signature/op_signature.h"

namespace cudaforge::library {

// Reads alpha * A B + beta * C + bias, then nothing or ReLU, from mm, addmm, bmm or baddbmm, add
// and relu. kNotFound: the region is not around one matrix product. kUnsupported: names what no
// epilogue computes. In float16, where ATen overflows to infinity after each operation, only
// additions of the product's own node, and ReLU. No GELU: cuBLASLt's is 0 from -5 on, where ATen's
// is -3e-7, and so is refused by the verifier.
Result<LibraryProduct> ReadLibraryProduct(const OpSignature& signature);

}  // namespace cudaforge::library
