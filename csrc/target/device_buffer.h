// DeviceBuffer: the owner of a piece of device memory.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

namespace cudaforge {

// Device memory owned by the Target that allocated it. Move-only; the destructor frees it.
class DeviceBuffer {
 public:
  using Free = std::function<void(void*)>;
  DeviceBuffer() = default;
  DeviceBuffer(void* data, int64_t bytes, Free free)
      : data_(data), bytes_(bytes), free_(std::move(free)) {}
  DeviceBuffer(DeviceBuffer&& o) noexcept { *this = std::move(o); }
  DeviceBuffer& operator=(DeviceBuffer&& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
    std::swap(free_, o.free_);
    return *this;
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer() {
    if (data_ != nullptr) free_(data_);
  }
  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  Free free_;
};

}  // namespace cudaforge
