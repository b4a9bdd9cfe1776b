#include "signature/aten_attention.h"

#include <optional>

#include "signature/aten_args.h"
#include "signature/aten_schema.h"
#include "signature/op_facts.h"

namespace cudaforge {
namespace {

constexpr char kForBackward[] = "compute_log_sumexp";

}  // namespace

c10::OperatorHandle RegionOpOf(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  const std::string_view region = RegionOpName(name);
  if (region == name || !op.schema().argumentIndexWithName(kForBackward)) return op;
  return c10::Dispatcher::singleton().findSchemaOrThrow(std::string(region).c_str(), "");
}

bool IsForBackward(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> args) {
  const std::optional<int> at = schema.argumentIndexWithName(kForBackward);
  return at && args[static_cast<size_t>(*at)] == c10::IValue(true);
}

Result<Node> AsRegionCall(const OpSignature& signature, const Node& node) {
  const std::string_view region = RegionOpName(node.op);
  if (region == node.op || node.outputs.size() != 1) return node;
  CF_ASSIGN_OR_RETURN(const c10::OperatorHandle op, FindAtenOp(node.op));
  const c10::FunctionSchema& schema = op.schema();
  CF_ASSIGN_OR_RETURN(const std::vector<AtenArg> args, BindAtenArgs(schema, node));
  const auto given = [&](const char* name) -> Result<Json> {
    const std::optional<int> at = schema.argumentIndexWithName(name);
    if (!at) return Json();
    const auto i = static_cast<size_t>(*at);
    return AtenArgToJson(args[i], schema.arguments()[i]);
  };
  Node call;
  call.op = region;
  call.outputs = node.outputs;
  for (const char* name : {"query", "key", "value", "attn_bias", "dropout_p", "is_causal"}) {
    CF_ASSIGN_OR_RETURN(Json argument, given(name));
    call.args.push_back(std::move(argument));
  }
  if (call.args[3].is_null()) {
    CF_ASSIGN_OR_RETURN(call.args[3], given("attn_mask"));
  }
  CF_ASSIGN_OR_RETURN(const Json debug, given("return_debug_mask"));
  if (debug == true) return Status::Unsupported("attention with a debug mask");
  const TensorSpec* const query = signature.SpecOf(call.args[0]);
  const TensorSpec* const key = signature.SpecOf(call.args[1]);
  if (query == nullptr || key == nullptr || query->sizes.size() != 4 || key->sizes.size() != 4) {
    return Status::Unsupported("attention that has not four dimensions");
  }
  if (call.args[5] == true && query->sizes[2] != key->sizes[2]) {
    return Status::Unsupported("causal attention with different numbers of keys and queries");
  }
  CF_ASSIGN_OR_RETURN(call.kwargs["scale"], given("scale"));
  call.kwargs["enable_gqa"] = query->sizes[1] != key->sizes[1];
  return call;
}

}  // namespace cudaforge
