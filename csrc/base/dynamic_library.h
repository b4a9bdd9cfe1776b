// A shared library opened at run time (dlopen), closed by the destructor unless released.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace cudaforge {

class DynamicLibrary {
 public:
  // Opens the first of `names` (paths or sonames) that works, RTLD_NOW | RTLD_LOCAL. Errors list
  // every name with the loader's message. kNotFound: none exists. kUnavailable: one exists but does
  // not open.
  static Result<DynamicLibrary> Open(const std::vector<std::string>& names);
  DynamicLibrary(DynamicLibrary&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), path_(std::move(other.path_)) {}
  DynamicLibrary& operator=(DynamicLibrary&&) = delete;
  DynamicLibrary(const DynamicLibrary&) = delete;
  DynamicLibrary& operator=(const DynamicLibrary&) = delete;
  ~DynamicLibrary();

  // Returns nullptr if the library has no such symbol.
  void* Symbol(const char* name) const;
  // The name that was opened.
  const std::string& path() const { return path_; }

 private:
  DynamicLibrary(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  void* handle_;
  std::string path_;
};

// Keeps a library open until the process ends, for libraries that do not survive unloading. The
// second of two with the same path is dropped. Thread-safe.
const DynamicLibrary& KeepLoaded(DynamicLibrary library);

// Fills function pointers from a library, one name at a time.
struct SymbolLoader {
  const DynamicLibrary& library;
  std::string missing;  // the first required name that is missing

  // Both set `pointer` to null if there is no such symbol.
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
