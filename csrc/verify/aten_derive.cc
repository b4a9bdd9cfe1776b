#include "verify/aten_derive.h"

#include <optional>
#include <string>
#include <vector>

#include "signature/aten_pch.h"
#include "signature/from_aten_region.h"
#include "signature/op_facts.h"

namespace cudaforge {
namespace {

// One node's arguments, its region inputs as tensors over the set's own bytes.
class Arguments {
 public:
  Arguments(const OpSignature& signature, const Node& node, InputSet* set)
      : signature_(signature), node_(node), set_(set) {}

  // The tensor when the argument is an input of the region.
  std::optional<at::Tensor> Input(size_t position) const {
    if (position >= node_.args.size()) return std::nullopt;
    const Json& argument = node_.args[position];
    if (!argument.is_object() || !argument.contains("in")) return std::nullopt;
    const auto i = argument["in"].get<size_t>();
    const TensorSpec& spec = signature_.inputs[i];
    return at::from_blob(set_->bytes[i].data(), spec.sizes, spec.strides,
                         at::TensorOptions().dtype(ToScalarType(spec.dtype)));
  }
  int64_t Int(size_t position) const { return node_.args.at(position).get<int64_t>(); }
  bool Bool(size_t position) const { return node_.args.at(position).get<bool>(); }
  std::vector<int64_t> Ints(size_t position) const {
    return node_.args.at(position).get<std::vector<int64_t>>();
  }
  void Write(size_t position, const at::Tensor& value) const {
    std::optional<at::Tensor> target = Input(position);
    if (target.has_value() && value.defined() && target->numel() > 0) {
      target->copy_(value.reshape(target->sizes()));
    }
  }

 private:
  const OpSignature& signature_;
  const Node& node_;
  InputSet* set_;
};

// The statistics of rows, in float32 as ATen keeps them, whatever the input's dtype.
void WriteStatistics(const Arguments& arguments, const at::Tensor& rows, size_t mean, size_t rstd) {
  const at::Tensor wide = rows.to(at::kDouble);
  arguments.Write(mean, wide.mean(-1));
  arguments.Write(rstd, (wide.var(-1, /*unbiased=*/false) + 1e-5).rsqrt());
}

void LayerNorm(const Arguments& arguments) {
  const auto input = arguments.Input(1);
  if (!input.has_value()) return;
  const auto shape = static_cast<int64_t>(arguments.Ints(2).size());
  WriteStatistics(arguments, input->flatten(input->dim() - shape), 3, 4);
}

void GroupNorm(const Arguments& arguments) {
  const auto input = arguments.Input(1);
  if (!input.has_value() || input->numel() == 0) return;
  WriteStatistics(arguments, input->reshape({arguments.Int(5), arguments.Int(8), -1}), 2, 3);
}

void BatchNorm(const Arguments& arguments) {
  const auto input = arguments.Input(1);
  if (!input.has_value() || input->dim() < 2 || input->numel() == 0) return;
  WriteStatistics(arguments, input->transpose(0, 1).flatten(1), 5, 6);
}

void RmsNorm(const Arguments& arguments) {
  const auto input = arguments.Input(1);
  if (!input.has_value()) return;
  const auto shape = static_cast<int64_t>(arguments.Ints(2).size());
  const at::Tensor rows = input->to(at::kDouble).flatten(input->dim() - shape);
  arguments.Write(3, (rows.square().mean(-1) + 1e-5).rsqrt());
}

void Softmax(const Arguments& arguments) {
  const auto output = arguments.Input(1);
  if (!output.has_value()) return;
  // The probabilities drawn for the output are odds here: after this they sum to one.
  arguments.Write(1, at::softmax(output->to(at::kDouble).log(), arguments.Int(2)));
}

void LogSoftmax(const Arguments& arguments) {
  const auto output = arguments.Input(1);
  if (!output.has_value()) return;
  arguments.Write(1, at::log_softmax(output->to(at::kDouble), arguments.Int(2)));
}

void MaxPool2d(const Arguments& arguments) {
  const auto input = arguments.Input(1);
  if (!input.has_value()) return;
  arguments.Write(7, std::get<1>(at::max_pool2d_with_indices(
                         *input, arguments.Ints(2), arguments.Ints(3), arguments.Ints(4),
                         arguments.Ints(5), arguments.Bool(6))));
}

void MaxPool3d(const Arguments& arguments) {
  const auto input = arguments.Input(1);
  if (!input.has_value()) return;
  arguments.Write(7, std::get<1>(at::max_pool3d_with_indices(
                         *input, arguments.Ints(2), arguments.Ints(3), arguments.Ints(4),
                         arguments.Ints(5), arguments.Bool(6))));
}

void Derive(const OpFacts& facts, const Arguments& arguments) {
  switch (facts.saved) {
    case Saved::kNothing:
      return;
    case Saved::kMoments:
      return facts.needs == OpNeeds::kTrailing ? LayerNorm(arguments)
             : facts.needs == OpNeeds::kGroup  ? GroupNorm(arguments)
                                               : BatchNorm(arguments);
    case Saved::kRms:
      return RmsNorm(arguments);
    case Saved::kSoftmax:
      return Softmax(arguments);
    case Saved::kLogSoftmax:
      return LogSoftmax(arguments);
    case Saved::kPlacesOfMaxima2d:
      return MaxPool2d(arguments);
    case Saved::kPlacesOfMaxima3d:
      return MaxPool3d(arguments);
  }
}

}  // namespace

Status DeriveInputs(const OpSignature& signature, InputSet* set) {
  const at::NoGradGuard no_grad;
  for (const Node& node : signature.nodes) {
    try {
      Derive(FactsOf(node.op), Arguments(signature, node, set));
    } catch (const std::exception& error) {
      return Status::Unsupported("inputs for " + node.op + ": " + error.what());
    }
  }
  return Status::Ok();
}

}  // namespace cudaforge
