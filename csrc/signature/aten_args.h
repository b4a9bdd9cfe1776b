// The arguments of one ATen call, converted between the signature's JSON, the schema's types, and
// IValues.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "signature/op_signature.h"

namespace cudaforge {

// A value of the region: input `index` (node < 0) or output `index` of an earlier node. Absent if
// index < 0.
struct ValueRef {
  int node = -1;
  int index = -1;
};

// One argument, ready to be pushed on a stack.
struct AtenArg {
  enum class Kind {
    kLiteral,             // `literal`
    kValue,               // refs[0]
    kTensorList,          // refs, none absent
    kOptionalTensorList,  // refs, absent ones are None
    kDevice,              // the device that the region runs on
  };
  Kind kind = Kind::kLiteral;
  c10::IValue literal;
  // Used in place of `literal` by the fp64 oracle: floating dtypes become float64.
  c10::IValue fp64_literal;
  std::vector<ValueRef> refs;
};

// Reads an argument of type `schema`. kInvalidArgument: it does not fit; kUnsupported: the format
// cannot hold it. References are not checked against the region's inputs and nodes.
Result<AtenArg> ParseAtenArg(const Json& json, const c10::Argument& schema);
// Returns the schema's default value; kInvalidArgument if there is none.
Result<AtenArg> DefaultAtenArg(const c10::Argument& schema);
// Returns the canonical JSON form of an argument. kUnsupported for a literal that the format cannot
// hold.
Result<Json> AtenArgToJson(const AtenArg& arg, const c10::Argument& schema);

}  // namespace cudaforge
