#pragma once
// Owns memory of a device, or of the host for a device.
#include <cstdint>
#include <functional>
#include <utility>

#include "moe/base/check.h"

namespace moe {

/// More was asked for than the device has left; names both.
class OutOfMemory : public BadInput {
  using BadInput::BadInput;
};

/// At least 64-byte aligned; holds anything at first. Of no bytes it may be null.
class Memory {
 public:
  using Release = std::function<void(void* data)>;

  Memory() = default;
  Memory(void* data, int64_t bytes, Release release) : data_(data), bytes_(bytes), release_(std::move(release)) {}
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    Memory taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~Memory() {
    if (data_) release_(data_);
  }

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  void swap(Memory& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(release_, other.release_);
  }

  void* data_ = nullptr;
  int64_t bytes_ = 0;
  Release release_;
};

}  // namespace moe
