#include "base/dynamic_library.h"

#include <dlfcn.h>

#include <cerrno>
#include <memory>
#include <mutex>
#include <system_error>

namespace cudaforge {
namespace {

// Returns true if the loader's message says that this file does not exist. A message about a
// dependency begins with the dependency's name.
bool IsAbsence(const std::string& error, const std::string& name) {
  return error.starts_with(name + ": ") &&
         error.ends_with(": " + std::generic_category().message(ENOENT));
}

}  // namespace

Result<DynamicLibrary> DynamicLibrary::Open(const std::vector<std::string>& names) {
  std::string tried;
  bool absent = true;
  for (const std::string& name : names) {
    if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      return DynamicLibrary(handle, name);
    }
    const char* said = dlerror();
    const std::string error = said != nullptr ? said : name;
    tried += (tried.empty() ? "" : "; ") + error;
    absent = absent && IsAbsence(error, name);
  }
  if (tried.empty()) tried = "no library was named";
  return absent ? Status::NotFound(tried) : Status::Unavailable(tried);
}

DynamicLibrary::~DynamicLibrary() {
  if (handle_ != nullptr) dlclose(handle_);
}

void* DynamicLibrary::Symbol(const char* name) const { return dlsym(handle_, name); }

const DynamicLibrary& KeepLoaded(DynamicLibrary library) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::unique_ptr<DynamicLibrary>>;
  const std::lock_guard<std::mutex> lock(mutex);
  for (const auto& other : *kept) {
    if (other->path() == library.path()) return *other;
  }
  kept->push_back(std::make_unique<DynamicLibrary>(std::move(library)));
  return *kept->back();
}

}  // namespace cudaforge
