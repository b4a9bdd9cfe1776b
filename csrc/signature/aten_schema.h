// Which ATen overloads a region may hold.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string_view>
#include <vector>

#include "base/status.h"
#include "signature/aten_args.h"

namespace cudaforge {

// "aten::sum.dim_IntList" -> its handle. kUnsupported: no such overload, another namespace than
// aten.
Result<c10::OperatorHandle> FindAtenOp(std::string_view op);

// kUnsupported, of `name`: an overload that mutates, returns views or other things than tensors,
// draws random numbers (attention may where CheckCall allows it), reads uninitialised memory, or
// has outputs whose shape depends on data.
Status CheckPure(const c10::OperatorHandle& op, std::string_view name);

// Whether any result is a list of tensors.
bool ReturnsList(const c10::FunctionSchema& schema);

// FindAtenOp of a pure one.
Result<c10::OperatorHandle> FindPureAtenOp(std::string_view op);

// Every argument in the schema's order, defaults filled in. kInvalidArgument: too many, unknown, or
// missing arguments.
Result<std::vector<AtenArg>> BindAtenArgs(const c10::FunctionSchema& schema, const Node& node);

// kUnsupported for calls that do more than their schema says: batch norms with running statistics,
// which they change in training or always, and attention with dropout.
Status CheckCall(const c10::FunctionSchema& schema, const std::vector<AtenArg>& args);
// The same, of a call's own values: all of the schema's, or the first of them.
Status CheckCall(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> args);

}  // namespace cudaforge
