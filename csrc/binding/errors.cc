#include "binding/errors.h"

#include <pybind11/pybind11.h>

#include <exception>

#include "base/check.h"

namespace cudaforge::binding {
namespace {

PyObject* ExceptionFor(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument:
      return PyExc_ValueError;
    case StatusCode::kNotFound:
      return PyExc_KeyError;
    case StatusCode::kIoError:
      return PyExc_OSError;
    case StatusCode::kTimeout:
      return PyExc_TimeoutError;
    case StatusCode::kUnsupported:
      return PyExc_NotImplementedError;
    default:
      return PyExc_RuntimeError;
  }
}

}  // namespace

void RegisterErrors() {
  pybind11::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const StatusError& error) {
      PyErr_SetString(ExceptionFor(error.code()), error.what());
    } catch (const CheckError& error) {
      PyErr_SetString(PyExc_ValueError, error.what());
    }
  });
}

}  // namespace cudaforge::binding
