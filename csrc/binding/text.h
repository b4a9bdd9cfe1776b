// Converts paths and messages, which may hold invalid UTF-8, to Python's text.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <vector>

namespace cudaforge::binding {

// As os.fsdecode: os.fsencode restores the bytes.
inline pybind11::str PathText(const std::string& path) {
  PyObject* text = PyUnicode_DecodeFSDefaultAndSize(path.data(), std::ssize(path));
  if (text == nullptr) throw pybind11::error_already_set();
  return pybind11::reinterpret_steal<pybind11::str>(text);
}

inline pybind11::list PathTexts(const std::vector<std::string>& paths) {
  pybind11::list list;
  for (const std::string& path : paths) list.append(PathText(path));
  return list;
}

// For display: invalid UTF-8 as "\xe9".
inline pybind11::str MessageText(const std::string& message) {
  PyObject* text = PyUnicode_DecodeUTF8(message.data(), std::ssize(message), "backslashreplace");
  if (text == nullptr) throw pybind11::error_already_set();
  return pybind11::reinterpret_steal<pybind11::str>(text);
}

}  // namespace cudaforge::binding
