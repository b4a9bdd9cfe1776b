// Regions that are one call of NVIDIA's library: a matrix product and what is added to it.
#pragma once

#include "base/status.h"
#include "kernel/library_product.h"
#include "signature/op_signature.h"

namespace cudaforge::library {

// Reads alpha * A B + beta * C + bias from mm, addmm, bmm or baddbmm, and add. kNotFound: the
// region is not around one matrix product. kUnsupported: names what the library does not compute.
// In float16, where ATen overflows to infinity after each operation, only additions of the
// product's own node. No activations, which the verifier refuses: cuBLASLt's ReLU of NaN is 0, and
// its GELU is 0 from -5 on, where ATen's is -3e-7.
Result<LibraryProduct> ReadLibraryProduct(const OpSignature& signature);

}  // namespace cudaforge::library
