#include "signature/aten_args.h"

#include <ATen/ScalarOps.h>

#include <limits>
#include <utility>

#include "signature/from_aten_region.h"

namespace cudaforge {
namespace {

using c10::IValue;
using c10::TypeKind;
using Kind = AtenArg::Kind;

// The schema's type without Optional. `real_type` distinguishes dtypes, layouts and SymInts from
// integers.
c10::TypePtr Unwrap(c10::TypePtr type) {
  while (type->kind() == TypeKind::OptionalType) {
    type = type->expectRef<c10::OptionalType>().getElementType();
  }
  return type;
}

bool IsOptional(const c10::TypePtr& type) { return type->kind() == TypeKind::OptionalType; }

c10::TypePtr ElementType(const c10::TypePtr& list) {
  return list->expectRef<c10::ListType>().getElementType();
}

Status Misfit(const Json& json, const c10::Argument& schema) {
  std::string text = LenientText(json, /*ascii=*/true);
  if (text.size() > 200) text = text.substr(0, 200) + "...";
  return Status::InvalidArgument("argument '" + schema.name() + "' of type " +
                                 schema.real_type()->str() + " cannot be " + text);
}

// The string under the only key of {"key": "..."}; nullopt for any other JSON.
std::optional<std::string> Tagged(const Json& json, const char* key) {
  if (!json.is_object() || json.size() != 1 || !json.contains(key)) return std::nullopt;
  const Json& value = json.at(key);
  if (!value.is_string()) return std::nullopt;
  return value.get<std::string>();
}

std::optional<int64_t> AsInt(const Json& json) {
  if (json.is_boolean()) return json.get<bool>() ? 1 : 0;
  if (!json.is_number_integer()) return std::nullopt;
  if (json.is_number_unsigned() &&
      json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return std::nullopt;
  }
  return json.get<int64_t>();
}

std::optional<double> AsDouble(const Json& json) {
  if (json.is_number()) return json.get<double>();
  auto name = Tagged(json, "float");
  if (!name) return std::nullopt;
  if (*name == "inf") return std::numeric_limits<double>::infinity();
  if (*name == "-inf") return -std::numeric_limits<double>::infinity();
  if (*name == "nan") return std::numeric_limits<double>::quiet_NaN();
  return std::nullopt;
}

std::optional<c10::Scalar> AsScalar(const Json& json) {
  if (json.is_boolean()) return c10::Scalar(json.get<bool>());
  if (json.is_number_integer()) {
    auto value = AsInt(json);
    if (!value) return std::nullopt;
    return c10::Scalar(*value);
  }
  auto value = AsDouble(json);
  if (!value) return std::nullopt;
  return c10::Scalar(*value);
}

std::optional<ValueRef> AsRef(const Json& json) {
  auto index = [&](const char* field) -> std::optional<int> {
    if (!json.contains(field) || !json.at(field).is_number_integer()) return std::nullopt;
    auto value = AsInt(json.at(field));
    if (!value || *value < 0 || *value > 4096) return std::nullopt;
    return static_cast<int>(*value);
  };
  if (json.contains("in")) {
    auto in = index("in");
    if (!in || json.size() != 1) return std::nullopt;
    return ValueRef{-1, *in};
  }
  auto node = index("node");
  auto out = index("out");
  if (!node || !out || json.size() != 2) return std::nullopt;
  return ValueRef{*node, *out};
}

constexpr std::pair<const char*, at::MemoryFormat> kMemoryFormats[] = {
    {"contiguous", at::MemoryFormat::Contiguous},
    {"preserve", at::MemoryFormat::Preserve},
    {"channels_last", at::MemoryFormat::ChannelsLast},
};

Result<IValue> ParseDTypeLiteral(const Json& json, const c10::Argument& schema) {
  auto name = Tagged(json, "dtype");
  if (!name) return Misfit(json, schema);
  CF_ASSIGN_OR_RETURN(DType dtype, ParseDType(*name));
  return IValue(ToScalarType(dtype));
}

// Reads a list's elements with one reader. An integer means N equal ones if the schema allows that.
template <typename T, typename Reader>
std::optional<c10::List<T>> ReadList(const Json& json, std::optional<int32_t> repeat, Reader read) {
  c10::List<T> list;
  if (!json.is_array()) {
    auto value = read(json);
    if (!value || !repeat) return std::nullopt;
    for (int32_t i = 0; i < *repeat; ++i) list.push_back(*value);
    return list;
  }
  list.reserve(json.size());
  for (const Json& element : json) {
    auto value = read(element);
    if (!value) return std::nullopt;
    list.push_back(*value);
  }
  return list;
}

std::optional<bool> AsBool(const Json& json) {
  if (!json.is_boolean()) return std::nullopt;
  return json.get<bool>();
}

Result<IValue> ParseListLiteral(const Json& json, const c10::TypePtr& type,
                                const c10::Argument& schema) {
  std::optional<IValue> value;
  auto keep = [&](auto list) {
    if (list) value = IValue(*std::move(list));
  };
  switch (ElementType(type)->kind()) {
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      keep(ReadList<int64_t>(json, schema.N(), AsInt));
      break;
    case TypeKind::FloatType:
      keep(ReadList<double>(json, schema.N(), AsDouble));
      break;
    case TypeKind::BoolType:
      keep(ReadList<bool>(json, schema.N(), AsBool));
      break;
    default:
      return Status::Unsupported("argument '" + schema.name() + "' of type " +
                                 schema.real_type()->str() + " is not supported");
  }
  if (!value) return Misfit(json, schema);
  return *std::move(value);
}

Result<IValue> ParseLiteral(const Json& json, const c10::TypePtr& type,
                            const c10::Argument& schema) {
  std::optional<IValue> value;
  switch (type->kind()) {
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      if (auto v = AsInt(json)) value = IValue(*v);
      break;
    case TypeKind::FloatType:
    case TypeKind::SymFloatType:
      if (auto v = AsDouble(json)) value = IValue(*v);
      break;
    case TypeKind::BoolType:
    case TypeKind::SymBoolType:
      if (auto v = AsBool(json)) value = IValue(*v);
      break;
    case TypeKind::NumberType:
      if (auto v = AsScalar(json)) value = IValue(*v);
      break;
    case TypeKind::TensorType:
      // As in Python's argument parser: a number does not affect type promotion within its
      // category.
      if (auto v = AsScalar(json)) {
        at::Tensor number = c10::scalar_to_tensor(*v);
        number.unsafeGetTensorImpl()->set_wrapped_number(true);
        value = IValue(std::move(number));
      }
      break;
    case TypeKind::StringType:
      if (auto v = Tagged(json, "str")) value = IValue(*v);
      break;
    case TypeKind::ScalarTypeType:
      return ParseDTypeLiteral(json, schema);
    case TypeKind::LayoutType: {
      auto name = Tagged(json, "layout");
      if (name && *name != "strided") return Status::Unsupported("layout " + *name);
      if (name) value = IValue(at::kStrided);
      break;
    }
    case TypeKind::MemoryFormatType: {
      auto name = Tagged(json, "memory_format");
      for (const auto& [known, format] : kMemoryFormats) {
        if (name && *name == known) value = IValue(format);
      }
      if (name && !value) return Status::Unsupported("memory format " + *name);
      break;
    }
    case TypeKind::ListType:
      return ParseListLiteral(json, type, schema);
    default:
      return Status::Unsupported("argument '" + schema.name() + "' of type " +
                                 schema.real_type()->str() + " is not supported");
  }
  if (!value) return Misfit(json, schema);
  return *std::move(value);
}

// The oracle computes in float64, so no argument may request a narrower floating type.
IValue Fp64Literal(const IValue& literal, const c10::TypePtr& type, const c10::Argument& schema) {
  if (literal.isNone()) return literal;
  if (type->kind() == TypeKind::ScalarTypeType &&
      c10::isFloatingType(static_cast<at::ScalarType>(literal.toInt()))) {
    return IValue(at::kDouble);
  }
  if (schema.name() == "half_to_float") return IValue(false);
  return literal;
}

AtenArg Literal(IValue literal, const c10::TypePtr& type, const c10::Argument& schema) {
  AtenArg arg;
  arg.fp64_literal = Fp64Literal(literal, type, schema);
  arg.literal = std::move(literal);
  return arg;
}

Result<AtenArg> ParseTensorList(const Json& json, const c10::TypePtr& type,
                                const c10::Argument& schema) {
  AtenArg arg;
  const bool optional = IsOptional(ElementType(type));
  arg.kind = optional ? Kind::kOptionalTensorList : Kind::kTensorList;
  if (!json.is_array()) return Misfit(json, schema);
  for (const Json& element : json) {
    if (element.is_null() && optional) {
      arg.refs.push_back({});
      continue;
    }
    auto ref = IsTensorReference(element) ? AsRef(element) : std::nullopt;
    if (!ref) return Misfit(json, schema);
    arg.refs.push_back(*ref);
  }
  return arg;
}

Json RefToJson(const ValueRef& ref) {
  if (ref.index < 0) return nullptr;
  if (ref.node < 0) return {{"in", ref.index}};
  return {{"node", ref.node}, {"out", ref.index}};
}

Json ScalarToJson(const c10::Scalar& scalar) {
  if (scalar.isBoolean()) return scalar.toBool();
  if (scalar.isFloatingPoint()) return FloatToJson(scalar.toDouble());
  return scalar.toLong();
}

Result<Json> LiteralToJson(const IValue& value, const c10::TypePtr& type,
                           const c10::Argument& schema) {
  if (value.isNone()) return Json(nullptr);
  if (type->kind() == TypeKind::ScalarTypeType) {
    CF_ASSIGN_OR_RETURN(DType dtype, DTypeFromScalarType(value.toScalarType()));
    return Json{{"dtype", std::string(DTypeName(dtype))}};
  }
  if (type->kind() == TypeKind::MemoryFormatType) {
    for (const auto& [name, format] : kMemoryFormats) {
      if (value.toMemoryFormat() == format) return Json{{"memory_format", name}};
    }
  } else if (type->kind() == TypeKind::LayoutType) {
    if (value.toLayout() == at::kStrided) return Json{{"layout", "strided"}};
  } else if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (tensor.defined() && tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      return ScalarToJson(tensor.item());
    }
  } else if (value.isBool()) {
    return Json(value.toBool());
  } else if (value.isInt()) {
    return type->kind() == TypeKind::FloatType ? FloatToJson(static_cast<double>(value.toInt()))
                                               : Json(value.toInt());
  } else if (value.isDouble()) {
    return FloatToJson(value.toDouble());
  } else if (value.isString()) {
    return Json{{"str", value.toStringRef()}};
  } else if (value.isList()) {
    Json array = Json::array();
    for (const IValue& element : value.toListRef()) {
      CF_ASSIGN_OR_RETURN(Json item, LiteralToJson(element, Unwrap(ElementType(type)), schema));
      array.push_back(std::move(item));
    }
    return array;
  }
  return Status::Unsupported("the value of argument '" + schema.name() + "' has no JSON form");
}

}  // namespace

Result<AtenArg> ParseAtenArg(const Json& json, const c10::Argument& schema) {
  const c10::TypePtr type = Unwrap(schema.real_type());
  const bool is_tensor = type->kind() == TypeKind::TensorType;
  if (type->kind() == TypeKind::ListType &&
      Unwrap(ElementType(type))->kind() == TypeKind::TensorType && !json.is_null()) {
    return ParseTensorList(json, type, schema);
  }
  if (json.is_null()) {
    // `Tensor` without `?` is required. An argument may be None only if its default is.
    const bool none_default = schema.default_value() && schema.default_value()->isNone();
    if (!IsOptional(schema.real_type()) && !none_default) return Misfit(json, schema);
    return Literal(IValue(), type, schema);
  }
  if (IsTensorReference(json)) {
    auto ref = AsRef(json);
    if (!is_tensor || !ref) return Misfit(json, schema);
    AtenArg arg;
    arg.kind = Kind::kValue;
    arg.refs.push_back(*ref);
    return arg;
  }
  if (type->kind() == TypeKind::DeviceObjType) {
    auto name = Tagged(json, "device");
    if (!name || *name != "target") {
      return Status::Unsupported("argument '" + schema.name() +
                                 "' names a device other than the target");
    }
    AtenArg arg;
    arg.kind = Kind::kDevice;
    return arg;
  }
  CF_ASSIGN_OR_RETURN(IValue literal, ParseLiteral(json, type, schema));
  return Literal(std::move(literal), type, schema);
}

Result<AtenArg> DefaultAtenArg(const c10::Argument& schema) {
  if (!schema.default_value()) {
    return Status::InvalidArgument("argument '" + schema.name() + "' is missing");
  }
  return Literal(*schema.default_value(), Unwrap(schema.real_type()), schema);
}

Result<Json> AtenArgToJson(const AtenArg& arg, const c10::Argument& schema) {
  switch (arg.kind) {
    case Kind::kValue:
      return RefToJson(arg.refs[0]);
    case Kind::kTensorList:
    case Kind::kOptionalTensorList: {
      Json array = Json::array();
      for (const ValueRef& ref : arg.refs) array.push_back(RefToJson(ref));
      return array;
    }
    case Kind::kDevice:
      return Json{{"device", "target"}};
    case Kind::kLiteral:
      break;
  }
  return LiteralToJson(arg.literal, Unwrap(schema.real_type()), schema);
}

}  // namespace cudaforge
