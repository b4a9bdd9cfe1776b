// Bytes that are written once and then read-only, in pages of their own that are neither writable
// nor executable.
#pragma once

#include <span>
#include <utility>

#include "base/status.h"

namespace cudaforge {

// Move-only; the destructor unmaps it. Moving keeps the address.
class SealedBytes {
 public:
  SealedBytes() = default;
  // A copy of `bytes`, which may be empty. kNoMemory.
  static Result<SealedBytes> Of(std::span<const char> bytes);
  SealedBytes(SealedBytes&& other) noexcept { *this = std::move(other); }
  SealedBytes& operator=(SealedBytes&& other) noexcept {
    std::swap(pages_, other.pages_);
    std::swap(size_, other.size_);
    return *this;
  }
  SealedBytes(const SealedBytes&) = delete;
  SealedBytes& operator=(const SealedBytes&) = delete;
  ~SealedBytes();

  // At the start of a page.
  const char* data() const { return static_cast<const char*>(pages_); }

 private:
  SealedBytes(void* pages, size_t size) : pages_(pages), size_(size) {}
  void* pages_ = nullptr;
  size_t size_ = 0;
};

}  // namespace cudaforge
