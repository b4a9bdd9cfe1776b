#include "binding/errors.h"

#include <pybind11/pybind11.h>

#include <exception>

#include "base/check.h"
#include "binding/text.h"

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
    case StatusCode::kNoMemory:
      return PyExc_MemoryError;
    case StatusCode::kTimeout:
      return PyExc_TimeoutError;
    case StatusCode::kUnsupported:
      return PyExc_NotImplementedError;
    default:
      return PyExc_RuntimeError;
  }
}

void Raise(PyObject* type, const char* message) {
  PyErr_SetObject(type, MessageText(message).ptr());
}

}  // namespace

void RegisterErrors() {
  pybind11::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const StatusError& error) {
      Raise(ExceptionFor(error.code()), error.what());
    } catch (const CheckError& error) {
      Raise(PyExc_ValueError, error.what());
    }
  });
}

}  // namespace cudaforge::binding
