#pragma once
// Where tensors live: a device's memory.
#include <cstdint>
#include <utility>

#include "moe/tensor/tensor_view.h"

namespace moe {

class MemorySpace {
 public:
  virtual ~MemorySpace() = default;
  virtual DeviceKind kind() const = 0;
  /// Zeroed, aligned to 16 bytes at least (the host's to a cache line), never null. Blocking.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* data, int64_t bytes) noexcept = 0;
  /// Blocking; to_host after everything that the device was given before.
  virtual void from_host(const void* from, void* to, int64_t bytes) = 0;
  virtual void to_host(const void* from, void* to, int64_t bytes) = 0;
  /// Inside this memory; queued on a native stream (Stream::launch), or done at once.
  virtual void copy(const void* from, void* to, int64_t bytes, void* native) = 0;
  virtual void clear(void* data, int64_t bytes, void* native) = 0;
};

/// The host's own. Has no state.
MemorySpace& cpu_memory();

/// An owner of `size` zeroed numbers that are no tensor's elements. The memory outlives it.
template <class T>
class Array {
 public:
  Array() = default;
  Array(MemorySpace& memory, int64_t size)
      : memory_(&memory), data_(static_cast<T*>(memory.allocate(bytes_of(size)))), size_(size) {}
  Array(Array&& other) noexcept { *this = std::move(other); }
  Array& operator=(Array&& other) noexcept {
    std::swap(memory_, other.memory_), std::swap(data_, other.data_), std::swap(size_, other.size_);
    return *this;
  }
  ~Array() {
    if (data_ != nullptr) memory_->release(data_, bytes_of(size_));
  }
  T* data() const { return data_; }
  int64_t size() const { return size_; }
  void from_host(const T* from) const { memory_->from_host(from, data_, bytes_of(size_)); }
  void to_host(T* to) const { memory_->to_host(data_, to, bytes_of(size_)); }

 private:
  static int64_t bytes_of(int64_t size) { return size * static_cast<int64_t>(sizeof(T)); }
  MemorySpace* memory_ = nullptr;
  T* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace moe
