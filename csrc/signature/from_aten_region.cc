#include "signature/from_aten_region.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/own_work.h"
#include "signature/aten_args.h"
#include "signature/aten_attention.h"
#include "signature/aten_means.h"
#include "signature/aten_oracle.h"
#include "signature/aten_schema.h"
#include "signature/op_facts.h"

namespace cudaforge {
namespace {

using c10::IValue;
using Kind = AtenArg::Kind;

Status CheckRef(const OpSignature& signature, size_t node, const ValueRef& ref) {
  if (ref.index < 0) return Status::Ok();
  if (ref.node < 0) {
    if (static_cast<size_t>(ref.index) < signature.inputs.size()) return Status::Ok();
    return Status::InvalidArgument("no input " + std::to_string(ref.index));
  }
  if (static_cast<size_t>(ref.node) >= node) {
    return Status::InvalidArgument("a node refers to itself or to a later one");
  }
  const Node& producer = signature.nodes[static_cast<size_t>(ref.node)];
  if (producer.HasOutput(ref.index)) return Status::Ok();
  return Status::InvalidArgument(producer.op + " has no output " + std::to_string(ref.index));
}

struct BoundNode {
  c10::OperatorHandle op;
  std::vector<AtenArg> args;
};

Result<BoundNode> BindNode(const OpSignature& signature, size_t index) {
  const Node& node = signature.nodes[index];
  CF_ASSIGN_OR_RETURN(c10::OperatorHandle op, FindPureAtenOp(node.op));
  CF_ASSIGN_OR_RETURN(std::vector<AtenArg> args, BindAtenArgs(op.schema(), node));
  CF_RETURN_IF_ERROR(CheckCall(op.schema(), args));
  for (const AtenArg& arg : args) {
    for (const ValueRef& ref : arg.refs) {
      if (Status s = CheckRef(signature, index, ref); !s.ok()) {
        return Status(s.code(), node.op + ": " + s.message());
      }
    }
  }
  const size_t declared = op.schema().returns().size();
  if (!ReturnsList(op.schema()) && node.outputs.size() != declared) {
    return Status::InvalidArgument(node.op + " returns " + std::to_string(declared) +
                                   " tensors, the signature lists " +
                                   std::to_string(node.outputs.size()));
  }
  return BoundNode{std::move(op), std::move(args)};
}

// Returns true if two indices may address the same element: this output cannot be written.
bool MayOverlap(const TensorSpec& spec) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // (stride, size)
  for (size_t d = 0; d < spec.sizes.size(); ++d) {
    if (spec.sizes[d] == 0) return false;
    if (spec.sizes[d] > 1) dims.emplace_back(spec.strides[d], spec.sizes[d]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;  // the last element that smaller strides reach
  for (const auto& [stride, size] : dims) {
    if (stride <= reach) return true;
    reach += stride * (size - 1);
  }
  return false;
}

}  // namespace

Result<OpSignature> NormalizeAten(const OpSignature& signature) {
  OpSignature normal = signature;
  for (size_t n = 0; n < normal.nodes.size(); ++n) {
    CF_ASSIGN_OR_RETURN(normal.nodes[n], AsRegionCall(normal, normal.nodes[n]));
    CF_ASSIGN_OR_RETURN(BoundNode bound, BindNode(normal, n));
    Json args = Json::array();
    Json kwargs = Json::object();
    for (size_t i = 0; i < bound.args.size(); ++i) {
      const c10::Argument& parameter = bound.op.schema().arguments()[i];
      CF_ASSIGN_OR_RETURN(Json json, AtenArgToJson(bound.args[i], parameter));
      if (parameter.kwarg_only()) {
        kwargs[parameter.name()] = std::move(json);
      } else {
        args.push_back(std::move(json));
      }
    }
    const c10::OperatorName& name = bound.op.operator_name();
    normal.nodes[n].op =
        name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    normal.nodes[n].args = std::move(args);
    normal.nodes[n].kwargs = std::move(kwargs);
  }
  if (normal.device == DeviceType::kCpu) {
    for (TensorSpec& input : normal.inputs) input.alignment = DTypeSize(input.dtype);
  }
  return normal;
}

class RegionProgram::Impl {
 public:
  // A node whose references index one table of values: inputs first, then every node's outputs.
  struct Step {
    c10::OperatorHandle op;
    std::vector<AtenArg> args;
    std::vector<std::vector<int>> values = {};  // per argument; -1: absent
    size_t first_output = 0;
    size_t output_count = 0;
    bool has_mean = false;  // see aten_means.h
    Float64 float64 = Float64::kItself;
    std::vector<size_t> dead = {};  // values that no later step and no output reads
  };

  static Result<std::shared_ptr<const Impl>> Create(const OpSignature& signature);

  std::vector<at::Tensor> Execute(at::ArrayRef<at::Tensor> inputs, bool fp64,
                                  const RegionProgram::Instead& instead = {}) const;
  const OpSignature& signature() const { return signature_; }

 private:
  size_t ValueIndex(const ValueRef& ref) const {
    const auto index = static_cast<size_t>(ref.index);
    return ref.node < 0 ? index : steps_[static_cast<size_t>(ref.node)].first_output + index;
  }
  void MarkDead();
  static void Push(const Step& step, size_t arg, const std::vector<at::Tensor>& values,
                   c10::Device device, bool fp64, torch::jit::Stack* stack);
  static void Collect(const Step& step, const torch::jit::Stack& stack,
                      std::vector<at::Tensor>* values);

  OpSignature signature_;
  std::vector<Step> steps_;
  std::vector<size_t> outputs_;
  size_t value_count_ = 0;
};

Result<std::shared_ptr<const RegionProgram::Impl>> RegionProgram::Impl::Create(
    const OpSignature& signature) {
  auto impl = std::make_shared<Impl>();
  impl->signature_ = signature;
  impl->value_count_ = signature.inputs.size();
  for (size_t n = 0; n < signature.nodes.size(); ++n) {
    CF_ASSIGN_OR_RETURN(BoundNode bound, BindNode(impl->signature_, n));
    Step step{std::move(bound.op), std::move(bound.args)};
    step.has_mean = HasMean(signature.nodes[n].op);
    step.float64 = FactsOf(signature.nodes[n].op).float64;
    bool reads_tensors = false;
    for (const AtenArg& arg : step.args) {
      std::vector<int> indices;
      for (const ValueRef& ref : arg.refs) {
        indices.push_back(ref.index < 0 ? -1 : static_cast<int>(impl->ValueIndex(ref)));
      }
      reads_tensors = reads_tensors || !indices.empty();
      step.values.push_back(std::move(indices));
    }
    // Without a dtype, a factory call would use the default dtype in the oracle.
    const std::vector<TensorSpec>& made = signature.nodes[n].outputs;
    for (size_t i = 0; i < step.args.size() && !reads_tensors; ++i) {
      if (step.op.schema().arguments()[i].name() == "dtype" && step.args[i].literal.isNone() &&
          !made.empty() && IsFloating(made[0].dtype)) {
        step.args[i].fp64_literal = IValue(at::kDouble);
      }
    }
    step.first_output = impl->value_count_;
    step.output_count = made.size();
    impl->value_count_ += made.size();
    impl->steps_.push_back(std::move(step));
  }
  for (const OutputRef& output : signature.outputs) {
    const ValueRef ref{output.node, output.out};
    if (output.node < 0 || output.out < 0) {
      return Status::InvalidArgument("an output has a negative index");
    }
    CF_RETURN_IF_ERROR(CheckRef(signature, signature.nodes.size(), ref));
    impl->outputs_.push_back(impl->ValueIndex(ref));
  }
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    if (MayOverlap(signature.output_spec(i))) {
      return Status::Unsupported("output " + std::to_string(i) + " has overlapping elements");
    }
  }
  impl->MarkDead();
  return std::shared_ptr<const Impl>(std::move(impl));
}

void RegionProgram::Impl::MarkDead() {
  std::vector<bool> read_later(value_count_, false);
  for (size_t output : outputs_) read_later[output] = true;
  // The caller holds the inputs in any case.
  std::fill_n(read_later.begin(), signature_.inputs.size(), true);
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    auto bury = [&](size_t value) {
      if (!read_later[value]) step->dead.push_back(value);
      read_later[value] = true;
    };
    for (size_t k = 0; k < step->output_count; ++k) bury(step->first_output + k);
    for (const std::vector<int>& values : step->values) {
      for (int value : values) {
        if (value >= 0) bury(static_cast<size_t>(value));
      }
    }
  }
}

void RegionProgram::Impl::Push(const Step& step, size_t arg, const std::vector<at::Tensor>& values,
                               c10::Device device, bool fp64, torch::jit::Stack* stack) {
  const AtenArg& plan = step.args[arg];
  const std::vector<int>& refs = step.values[arg];
  switch (plan.kind) {
    case Kind::kLiteral:
      stack->push_back(fp64 ? plan.fp64_literal : plan.literal);
      return;
    case Kind::kDevice:
      stack->emplace_back(device);
      return;
    case Kind::kValue:
      stack->emplace_back(values[static_cast<size_t>(refs[0])]);
      return;
    case Kind::kTensorList: {
      c10::List<at::Tensor> list;
      for (int ref : refs) list.push_back(values[static_cast<size_t>(ref)]);
      stack->emplace_back(std::move(list));
      return;
    }
    case Kind::kOptionalTensorList: {
      c10::List<std::optional<at::Tensor>> list;
      for (int ref : refs) {
        list.push_back(ref < 0 ? std::nullopt
                               : std::make_optional(values[static_cast<size_t>(ref)]));
      }
      stack->emplace_back(std::move(list));
      return;
    }
  }
}

void RegionProgram::Impl::Collect(const Step& step, const torch::jit::Stack& stack,
                                  std::vector<at::Tensor>* values) {
  size_t next = step.first_output;
  const size_t end = step.first_output + step.output_count;
  auto take = [&](const at::Tensor& tensor) {
    TORCH_CHECK(next < end, step.op.operator_name(),
                " returned more tensors than its signature lists");
    (*values)[next++] = tensor;
  };
  for (const IValue& value : stack) {
    if (value.isTensor()) {
      take(value.toTensor());
    } else {
      for (const IValue& element : value.toListRef()) take(element.toTensor());
    }
  }
  TORCH_CHECK(next == end, step.op.operator_name(),
              " returned fewer tensors than its signature lists");
}

std::vector<at::Tensor> RegionProgram::Impl::Execute(at::ArrayRef<at::Tensor> inputs, bool fp64,
                                                     const RegionProgram::Instead& instead) const {
  TORCH_CHECK(inputs.size() == signature_.inputs.size(), "the region takes ",
              signature_.inputs.size(), " inputs, not ", inputs.size());
  const OwnWork own_work;
  // Autograd and autocast were applied around the region. Inside, calls mean what the signature
  // says.
  c10::impl::ExcludeDispatchKeyGuard guard(c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                           c10::autocast_dispatch_keyset);
  c10::Device device(at::kCPU);
  if (!inputs.empty()) {
    device = inputs[0].device();
  } else if (signature_.device == DeviceType::kCuda) {
    device = c10::impl::VirtualGuardImpl(at::kCUDA).getDevice();
  }
  std::vector<at::Tensor> values(value_count_);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool upcast = fp64 && at::isFloatingType(inputs[i].scalar_type());
    values[i] = upcast ? inputs[i].to(at::kDouble) : inputs[i];
  }
  torch::jit::Stack stack;
  for (const Step& step : steps_) {
    stack.clear();
    for (size_t i = 0; i < step.args.size(); ++i) Push(step, i, values, device, fp64, &stack);
    const torch::jit::Stack args = fp64 && step.has_mean ? stack : torch::jit::Stack();
    if (fp64 && step.float64 != Float64::kItself) {
      stack = {RunInFloat64(step.float64, stack)};
    } else if (!instead || !instead(static_cast<size_t>(&step - steps_.data()), &stack)) {
      step.op.callBoxed(stack);
    }
    Collect(step, stack, &values);
    if (!args.empty()) {
      at::Tensor& mean = values[step.first_output + 1];
      mean = DefinedMean(step.op.schema().name(), args, mean);
    }
    for (size_t value : step.dead) values[value].reset();
  }
  std::vector<at::Tensor> outputs;
  outputs.reserve(outputs_.size());
  for (size_t output : outputs_) outputs.push_back(values[output]);
  return outputs;
}

Result<std::unique_ptr<RegionProgram>> RegionProgram::Create(const OpSignature& signature) {
  CF_ASSIGN_OR_RETURN(auto impl, Impl::Create(signature));
  return std::unique_ptr<RegionProgram>(new RegionProgram(std::move(impl)));
}

std::vector<at::Tensor> RegionProgram::Run(at::ArrayRef<at::Tensor> inputs) const {
  return impl_->Execute(inputs, /*fp64=*/false);
}

std::vector<at::Tensor> RegionProgram::RunFp64(at::ArrayRef<at::Tensor> inputs) const {
  return impl_->Execute(inputs, /*fp64=*/true);
}

std::vector<at::Tensor> RegionProgram::RunWith(at::ArrayRef<at::Tensor> inputs,
                                               const Instead& instead) const {
  return impl_->Execute(inputs, /*fp64=*/false, instead);
}

std::vector<at::Tensor> RegionProgram::RunStrided(at::ArrayRef<at::Tensor> inputs) const {
  std::vector<at::Tensor> outputs = Run(inputs);
  auto shares = [](const at::Tensor& a, const at::Tensor& b) {
    return a.numel() > 0 && a.has_storage() && b.has_storage() && a.is_alias_of(b);
  };
  for (size_t i = 0; i < outputs.size(); ++i) {
    const TensorSpec& spec = impl_->signature().output_spec(i);
    at::Tensor& output = outputs[i];
    if (!output.defined() || output.scalar_type() != ToScalarType(spec.dtype) ||
        output.sizes() != at::IntArrayRef(spec.sizes)) {
      throw UnexpectedResult(
          {__func__, __FILE__, __LINE__},
          c10::str("output ", i, " of the region is ", output.toString(), output.sizes(),
                   ", its signature says ", std::string(DTypeName(spec.dtype)),
                   at::IntArrayRef(spec.sizes)));
    }
    const bool aliased =
        std::any_of(inputs.begin(), inputs.end(),
                    [&](const at::Tensor& input) { return shares(output, input); }) ||
        std::any_of(outputs.begin(), outputs.begin() + static_cast<std::ptrdiff_t>(i),
                    [&](const at::Tensor& earlier) { return shares(output, earlier); });
    if (!aliased && output.strides() == at::IntArrayRef(spec.strides)) continue;
    at::Tensor exact = at::empty_strided(spec.sizes, spec.strides, output.options());
    exact.copy_(output);
    output = std::move(exact);
  }
  return outputs;
}

const OpSignature& RegionProgram::signature() const { return impl_->signature(); }

}  // namespace cudaforge
