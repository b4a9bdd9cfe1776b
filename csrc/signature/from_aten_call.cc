#include "signature/from_aten_call.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "signature/aten_args.h"
#include "signature/aten_attention.h"
#include "signature/aten_numerics.h"
#include "signature/from_aten_region.h"

namespace cudaforge {
namespace {

using c10::IValue;
using Kind = AtenArg::Kind;

Result<TensorSpec> SpecOfTensor(const at::Tensor& tensor) {
  if (!IsPlain(tensor)) {
    return Status::Unsupported(
        "a tensor that is not strided, of symbolic sizes, without memory, lazily conjugated or "
        "negated, or with names");
  }
  TensorSpec spec;
  CF_ASSIGN_OR_RETURN(spec.dtype, DTypeFromScalarType(tensor.scalar_type()));
  spec.sizes = tensor.sizes().vec();
  spec.strides = tensor.strides().vec();
  return spec;
}

class Reader {
 public:
  explicit Reader(AtenCall* call) : call_(call) {}

  // Reads an argument of the one node. `place`: its index.
  Result<AtenArg> Read(const IValue& value, int arg) {
    AtenArg read;
    if (value.isTensor()) {
      const at::Tensor& tensor = value.toTensor();
      if (!tensor.defined() || tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
        if (tensor.defined()) read.literal = value;
        return read;
      }
      read.kind = Kind::kValue;
      CF_ASSIGN_OR_RETURN(const int index, Input(tensor, {arg, -1}));
      read.refs.push_back({-1, index});
      return read;
    }
    if (value.isTensorList() || value.isOptionalTensorList()) {
      read.kind = value.isTensorList() ? Kind::kTensorList : Kind::kOptionalTensorList;
      const c10::ArrayRef<IValue> list = value.toListRef();
      for (size_t i = 0; i < list.size(); ++i) {
        if (list[i].isNone() || !list[i].toTensor().defined()) {
          read.refs.emplace_back();
          continue;
        }
        CF_ASSIGN_OR_RETURN(const int index, Input(list[i].toTensor(), {arg, static_cast<int>(i)}));
        read.refs.push_back({-1, index});
      }
      return read;
    }
    if (value.isDevice()) {
      asked_for_ = value.toDevice();
      read.kind = Kind::kDevice;
      return read;
    }
    read.literal = value;
    return read;
  }

  // Checks and fields that concern all inputs together.
  Status Finish() {
    OpSignature& signature = call_->signature;
    if (!device_) return Status::Unsupported("a call without a tensor");
    if (!device_->is_cpu() && !device_->is_cuda()) {
      return Status::Unsupported("device " + device_->str());
    }
    if (asked_for_ && asked_for_->type() != device_->type()) {
      return Status::Unsupported("a result on another device");
    }
    signature.device = device_->is_cuda() ? DeviceType::kCuda : DeviceType::kCpu;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      std::vector<int> group;
      for (size_t j = 0; j < tensors_.size(); ++j) {
        if (!tensors_[i].is_alias_of(tensors_[j])) continue;
        if (j < i) break;
        group.push_back(static_cast<int>(j));
      }
      if (group.size() > 1) signature.aliases.push_back(std::move(group));
    }
    return Status::Ok();
  }

  // Reads a result that is the region's next output.
  Status ReadOutput(const at::Tensor& result) {
    OpSignature& signature = call_->signature;
    Node& node = signature.nodes[0];
    TensorSpec spec;
    if (!result.defined()) {
      spec.absent = true;
      call_->others.emplace_back(result);
    } else {
      for (const at::Tensor& input : tensors_) {
        if (!result.is_alias_of(input)) continue;
        return Status::Unsupported("a result that is one of the arguments");
      }
      CF_ASSIGN_OR_RETURN(spec, SpecOfTensor(result));
      signature.outputs.push_back({0, static_cast<int>(node.outputs.size())});
      call_->others.emplace_back();
    }
    node.outputs.push_back(std::move(spec));
    return Status::Ok();
  }

 private:
  Result<int> Input(const at::Tensor& tensor, TensorPlace place) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].is_same(tensor)) return static_cast<int>(i);
    }
    if (!device_) device_ = tensor.device();
    if (tensor.device() != *device_) return Status::Unsupported("tensors of several devices");
    CF_ASSIGN_OR_RETURN(TensorSpec spec, SpecOfTensor(tensor));
    spec.alignment = KnownAlignment(tensor);
    call_->signature.inputs.push_back(std::move(spec));
    call_->inputs.push_back(place);
    tensors_.push_back(tensor);
    return static_cast<int>(tensors_.size()) - 1;
  }

  AtenCall* call_;
  std::vector<at::Tensor> tensors_;
  std::optional<c10::Device> device_, asked_for_;
};

}  // namespace

const at::Tensor& TensorPlace::In(c10::ArrayRef<IValue> args) const {
  const IValue& value = args[static_cast<size_t>(arg)];
  return element < 0 ? value.toTensor()
                     : value.toListRef()[static_cast<size_t>(element)].toTensor();
}

Result<AtenCall> ReadAtenCall(const c10::OperatorHandle& op, c10::ArrayRef<IValue> args,
                              c10::ArrayRef<IValue> results) {
  const c10::FunctionSchema& schema = op.schema();
  if (IsForBackward(schema, args)) return Status::Unsupported("attention for a backward");
  const c10::OperatorName& name = op.operator_name();
  AtenCall call;
  Reader reader(&call);
  Node node;
  node.op = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
  for (size_t i = 0; i < args.size(); ++i) {
    const c10::Argument& parameter = schema.arguments()[i];
    CF_ASSIGN_OR_RETURN(const AtenArg arg, reader.Read(args[i], static_cast<int>(i)));
    CF_ASSIGN_OR_RETURN(Json json, AtenArgToJson(arg, parameter));
    if (parameter.kwarg_only()) {
      node.kwargs[parameter.name()] = std::move(json);
    } else {
      node.args.push_back(std::move(json));
    }
  }
  CF_RETURN_IF_ERROR(reader.Finish());
  OpSignature& signature = call.signature;
  signature.nodes.push_back(std::move(node));
  const size_t returned = RegionOpOf(op).schema().returns().size();
  for (const IValue& result : results) {
    if (call.others.size() >= returned) {
      call.others.push_back(result);
    } else if (result.isTensor()) {
      CF_RETURN_IF_ERROR(reader.ReadOutput(result.toTensor()));
    } else {
      return Status::Unsupported("a result that is no tensor");
    }
  }
  const auto& made = signature.nodes[0].outputs;
  if (std::all_of(made.begin(), made.end(),
                  [](const TensorSpec& spec) { return spec.absent || spec.numel() == 0; })) {
    return Status::Unsupported("results without elements");
  }
  CF_ASSIGN_OR_RETURN(signature, NormalizeAten(signature));
  signature.numerics = NumericsInForce({signature.nodes[0].op});
  return call;
}

}  // namespace cudaforge
