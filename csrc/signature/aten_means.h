// The means that ATen's calls return beside variances: of var_mean, and those that norms save.
// ATen finds them by a running update, which makes NaN of an infinity that other elements follow:
// whether such a mean is infinite depends on the order, in float64 as in float32.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string_view>

namespace cudaforge {

// Whether the second output of this overload is such a mean.
bool HasMean(std::string_view op);

// `mean`, but where it is NaN what at::mean gives: infinity where the elements' infinities are of
// one sign. REQUIRES: HasMean(op), and `mean` is of its call with `args`.
at::Tensor DefinedMean(std::string_view op, c10::ArrayRef<c10::IValue> args,
                       const at::Tensor& mean);

}  // namespace cudaforge
