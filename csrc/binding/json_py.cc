#include "binding/json_py.h"

#include "binding/errors.h"

namespace cudaforge::binding {

namespace py = pybind11;

py::object ToPython(const Json& value) {
  switch (value.type()) {
    case Json::value_t::boolean:
      return py::bool_(value.get<bool>());
    case Json::value_t::number_integer:
      return py::int_(value.get<int64_t>());
    case Json::value_t::number_unsigned:
      return py::int_(value.get<uint64_t>());
    case Json::value_t::number_float:
      return py::float_(value.get<double>());
    case Json::value_t::string:
      return py::str(value.get_ref<const std::string&>());
    case Json::value_t::array: {
      py::list list;
      for (const Json& item : value) list.append(ToPython(item));
      return list;
    }
    case Json::value_t::object: {
      py::dict dict;
      for (const auto& [key, item] : value.items()) dict[py::str(key)] = ToPython(item);
      return dict;
    }
    default:
      return py::none();
  }
}

Json FromPython(py::handle value, int depth) {
  if (depth > 64) throw StatusError(Status::InvalidArgument("nested deeper than 64"));
  if (value.is_none()) return nullptr;
  if (py::isinstance<py::bool_>(value)) return value.cast<bool>();
  if (py::isinstance<py::int_>(value)) return value.cast<int64_t>();
  if (py::isinstance<py::float_>(value)) return value.cast<double>();
  if (py::isinstance<py::str>(value)) return value.cast<std::string>();
  if (py::isinstance<py::dict>(value)) {
    Json object = Json::object();
    for (const auto& [key, item] : py::reinterpret_borrow<py::dict>(value)) {
      if (!py::isinstance<py::str>(key)) {
        throw StatusError(Status::InvalidArgument("a key is not a string"));
      }
      object[key.cast<std::string>()] = FromPython(item, depth + 1);
    }
    return object;
  }
  if (py::isinstance<py::list>(value) || py::isinstance<py::tuple>(value)) {
    Json array = Json::array();
    for (py::handle item : value) array.push_back(FromPython(item, depth + 1));
    return array;
  }
  throw StatusError(Status::InvalidArgument(
      "cannot be JSON: " + py::repr(py::type::handle_of(value)).cast<std::string>()));
}

}  // namespace cudaforge::binding
