// The means that ATen returns with variances, in var_mean and norms. ATen's running update can
// turn an infinity into NaN. Which of the two results depends on the order of summation, also in
// float64.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string_view>

namespace cudaforge {

// Returns true if the second output of this overload is one of these means.
bool HasMean(std::string_view op);

// Returns `mean` with each NaN replaced by at::mean's result, which is infinite if all infinities
// have one sign. REQUIRES: HasMean(op), and `mean` is the result of its call with `args`.
at::Tensor DefinedMean(std::string_view op, c10::ArrayRef<c10::IValue> args,
                       const at::Tensor& mean);

}  // namespace cudaforge
