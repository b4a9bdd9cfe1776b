#include "signature/aten_schema.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "signature/op_facts.h"

namespace cudaforge {
namespace {

constexpr const char* kDataDependent = "has outputs that depend on more than its inputs' shapes";
constexpr const char* kMayMutate = "may change its arguments or return views of them";
constexpr std::pair<at::Tag, const char*> kRefusedTags[] = {
    {at::Tag::dynamic_output_shape, kDataDependent},
    {at::Tag::data_dependent_output, kDataDependent},
    {at::Tag::inplace_view, kMayMutate},
    {at::Tag::maybe_aliasing_or_mutating, kMayMutate},
};

bool IsTensorOrTensors(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::TensorType) return true;
  return type->kind() == c10::TypeKind::ListType &&
         type->expectRef<c10::ListType>().getElementType()->kind() == c10::TypeKind::TensorType;
}

}  // namespace

Status CheckPure(const c10::OperatorHandle& op, std::string_view name) {
  auto refuse = [&](std::string_view why) {
    return Status::Unsupported(std::string(name) + " " + std::string(why));
  };
  const c10::FunctionSchema& schema = op.schema();
  if (schema.is_mutable()) return refuse("changes its arguments");
  for (const c10::Argument& argument : schema.arguments()) {
    if (argument.alias_info() != nullptr) return refuse("returns views or changes its arguments");
  }
  if (schema.returns().empty()) return refuse("returns nothing");
  for (const c10::Argument& result : schema.returns()) {
    if (!IsTensorOrTensors(result.real_type())) return refuse("returns more than tensors");
  }
  const OpFacts& facts = FactsOf(op.operator_name().name);
  const bool random = op.hasTag(at::Tag::nondeterministic_seeded) || facts.kind == OpKind::kDraws;
  // Attention draws random numbers only if its dropout_p is not 0: see CheckCall.
  if (random && facts.family != OpFamily::kAttention) return refuse("draws random numbers");
  for (const auto& [tag, why] : kRefusedTags) {
    if (op.hasTag(tag)) return refuse(why);
  }
  if (facts.kind == OpKind::kAllocates) return refuse("returns uninitialised memory");
  return Status::Ok();
}

bool ReturnsList(const c10::FunctionSchema& schema) {
  return std::any_of(schema.returns().begin(), schema.returns().end(), [](const auto& result) {
    return result.real_type()->kind() == c10::TypeKind::ListType;
  });
}

Result<c10::OperatorHandle> FindAtenOp(std::string_view op) {
  if (!op.starts_with("aten::")) {
    return Status::Unsupported(std::string(op) + " is not an ATen operator");
  }
  const std::string_view name = OpBaseName(op);
  std::string overload(op.substr(std::min(name.size() + 1, op.size())));
  if (overload == "default") overload.clear();
  auto handle = c10::Dispatcher::singleton().findSchema({std::string(name), std::move(overload)});
  if (handle) return *handle;
  std::string others;
  for (const c10::OperatorName& other : c10::Dispatcher::singleton().getAllOpNames()) {
    if (other.name == name) others += (others.empty() ? "" : ", ") + c10::toString(other);
  }
  return Status::Unsupported(std::string(op) + " does not exist in this PyTorch" +
                             (others.empty() ? "" : "; there is " + others));
}

Result<c10::OperatorHandle> FindPureAtenOp(std::string_view op) {
  CF_ASSIGN_OR_RETURN(c10::OperatorHandle handle, FindAtenOp(op));
  CF_RETURN_IF_ERROR(CheckPure(handle, op));
  return handle;
}

Result<std::vector<AtenArg>> BindAtenArgs(const c10::FunctionSchema& schema, const Node& node) {
  const auto& parameters = schema.arguments();
  std::vector<AtenArg> bound;
  bound.reserve(parameters.size());
  size_t used_kwargs = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const c10::Argument& parameter = parameters[i];
    const Json* given = nullptr;
    if (i < node.args.size()) {
      if (parameter.kwarg_only()) {
        return Status::InvalidArgument(node.op + " takes fewer than " +
                                       std::to_string(node.args.size()) + " positional arguments");
      }
      given = &node.args[i];
    } else if (auto it = node.kwargs.find(parameter.name()); it != node.kwargs.end()) {
      given = &*it;
      ++used_kwargs;
    }
    auto arg = given != nullptr ? ParseAtenArg(*given, parameter) : DefaultAtenArg(parameter);
    if (!arg.ok()) {
      return Status(arg.status().code(), node.op + ": " + arg.status().message());
    }
    bound.push_back(std::move(arg).value());
  }
  if (node.args.size() > parameters.size() || used_kwargs != node.kwargs.size()) {
    return Status::InvalidArgument(node.op + " has unknown or duplicate arguments");
  }
  return bound;
}

Status CheckCall(const c10::FunctionSchema& schema, const std::vector<AtenArg>& args) {
  const c10::IValue tensor{at::Tensor()};
  std::vector<c10::IValue> values;
  for (const AtenArg& arg : args) {
    values.push_back(arg.kind == AtenArg::Kind::kValue ? tensor : arg.literal);
  }
  return CheckCall(schema, values);
}

Status CheckCall(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> args) {
  bool training = true;  // if no argument says so
  bool running = false;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& name = schema.arguments()[i].name();
    const c10::IValue& arg = args[i];
    if (name == "training" || name == "train") training = !arg.isBool() || arg.toBool();
    if (name == "dropout_p" && !(arg.isDouble() && arg.toDouble() == 0)) {
      return Status::Unsupported(schema.name() + " draws random numbers");
    }
    if (name.starts_with("running_")) running = running || arg.isTensor();
  }
  // Backward formulas, the functional form and inference have arguments of these names too, but
  // only read them.
  const std::string& op = schema.name();
  const auto has = [&op](const char* word) { return op.find(word) != std::string::npos; };
  const bool reads_only = op.ends_with("backward") || op.ends_with("functional") ||
                          has("no_training") || has("no_update");
  if (training && running && !reads_only) {
    return Status::Unsupported(op + " changes its running statistics");
  }
  return Status::Ok();
}

}  // namespace cudaforge
