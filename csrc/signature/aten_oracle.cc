#include "signature/aten_oracle.h"

#include <ATen/ATen.h>

#include "base/check.h"

namespace cudaforge {
namespace {

using c10::IValue;

at::Tensor Wide(const IValue& tensor) { return tensor.toTensor().to(at::kDouble); }

}  // namespace

at::Tensor RunInFloat64(Float64 how, c10::ArrayRef<IValue> args) {
  const at::Tensor left = Wide(args[0]), right = Wide(args[1]);
  switch (how) {
    case Float64::kProduct:
      return left.mm(right);
    case Float64::kScaledRows:
      return left.mm(right.t()) * Wide(args[2]);
    case Float64::kScaledProduct: {
      at::Tensor result = (left * Wide(args[2])).mm(right * Wide(args[3]));
      if (args[4].isTensor()) result = result + Wide(args[4]);
      return args[5].isTensor() ? result * Wide(args[5]) : result;
    }
    case Float64::kItself:
      break;
  }
  CF_CHECK(false) << "it has a kernel of its own";
  return {};
}

}  // namespace cudaforge
