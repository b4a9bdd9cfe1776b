#include "target/cpu/sealed_bytes.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace cudaforge {

Result<SealedBytes> SealedBytes::Of(std::span<const char> bytes) {
  const size_t size = std::max(bytes.size(), size_t{1});
  void* const pages =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return Status::NoMemory("no memory for a kernel's arguments");
  SealedBytes sealed(pages, size);
  if (!bytes.empty()) std::memcpy(pages, bytes.data(), bytes.size());
  if (mprotect(pages, size, PROT_READ) != 0) {
    return Status::NoMemory("a kernel's arguments cannot be made read-only");
  }
  return sealed;
}

SealedBytes::~SealedBytes() {
  if (pages_ != nullptr) munmap(pages_, size_);
}

}  // namespace cudaforge
