// The ATen overloads that a region may hold.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string_view>
#include <vector>

#include "base/status.h"
#include "signature/aten_args.h"

namespace cudaforge {

// "aten::sum.dim_IntList" -> its handle. kUnsupported: the overload does not exist, or is not in
// the namespace aten.
Result<c10::OperatorHandle> FindAtenOp(std::string_view op);

// kUnsupported, with `name` in the message: the overload mutates, returns views or something other
// than tensors, draws random numbers (except attention, see CheckCall), reads uninitialised memory,
// or has output shapes that depend on data.
Status CheckPure(const c10::OperatorHandle& op, std::string_view name);

// Returns true if any result is a list of tensors.
bool ReturnsList(const c10::FunctionSchema& schema);

// FindAtenOp, then CheckPure.
Result<c10::OperatorHandle> FindPureAtenOp(std::string_view op);

// Returns every argument in the schema's order, defaults filled in. kInvalidArgument: too many,
// unknown, or missing arguments.
Result<std::vector<AtenArg>> BindAtenArgs(const c10::FunctionSchema& schema, const Node& node);

// kUnsupported for calls that do more than the schema says: batch norms that update running
// statistics, and attention with dropout.
Status CheckCall(const c10::FunctionSchema& schema, const std::vector<AtenArg>& args);
// The same for a call's values: all of the schema's arguments, or the first ones.
Status CheckCall(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> args);

}  // namespace cudaforge
