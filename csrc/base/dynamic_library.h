// A shared library opened at run time (dlopen), closed by the destructor unless released.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace cudaforge {

class DynamicLibrary {
 public:
  // The first of `names` (paths or sonames) that opens, RTLD_NOW | RTLD_LOCAL. Errors list every
  // name tried with the loader's message: kNotFound where none of them is there, kUnavailable where
  // one is and does not open (no library, or one that it needs is missing).
  static Result<DynamicLibrary> Open(const std::vector<std::string>& names);
  DynamicLibrary(DynamicLibrary&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), path_(std::move(other.path_)) {}
  DynamicLibrary& operator=(DynamicLibrary&&) = delete;
  DynamicLibrary(const DynamicLibrary&) = delete;
  DynamicLibrary& operator=(const DynamicLibrary&) = delete;
  ~DynamicLibrary();

  // nullptr when the library has no such symbol.
  void* Symbol(const char* name) const;
  // The name that opened.
  const std::string& path() const { return path_; }

 private:
  DynamicLibrary(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  void* handle_;
  std::string path_;
};

// Keeps a library open until the process ends: for those with state of their own that does not
// survive unloading. Opened twice under one path, it is kept once. Thread-safe.
const DynamicLibrary& KeepLoaded(DynamicLibrary library);

// Fills a table of function pointers from a library, one name at a time.
struct SymbolLoader {
  const DynamicLibrary& library;
  std::string missing;  // the first required name that the library does not have

  // Both set `pointer` to null where there is no such symbol.
  template <typename Pointer>
  void Optional(Pointer& pointer, const char* name) {
    pointer = reinterpret_cast<Pointer>(library.Symbol(name));
  }
  template <typename Pointer>
  void Required(Pointer& pointer, const char* name) {
    Optional(pointer, name);
    if (pointer == nullptr && missing.empty()) missing = name;
  }
};

}  // namespace cudaforge
