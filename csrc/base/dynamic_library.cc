#include "base/dynamic_library.h"

#include <dlfcn.h>

#include <memory>
#include <mutex>

namespace cudaforge {

Result<DynamicLibrary> DynamicLibrary::Open(const std::vector<std::string>& names) {
  std::string tried;
  for (const std::string& name : names) {
    if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      return DynamicLibrary(handle, name);
    }
    const char* error = dlerror();
    tried += (tried.empty() ? "" : "; ") + (error != nullptr ? std::string(error) : name);
  }
  return Status::Unavailable(tried.empty() ? "no library was named" : tried);
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
