#pragma once
// Memory of a device, or of the host for a device: owned blocks, their allocators, and copies between host and device.
#include <cstdint>
#include <functional>
#include <utility>

#include "moe/base/check.h"
#include "moe/base/device_kind.h"

namespace moe {

/// The error if more memory is requested than the device has left; its text names both amounts.
class OutOfMemory : public BadInput {
  using BadInput::BadInput;
};

/// Owns one block.
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

/// An allocator of one device's memory for tensors, which also copies and clears. It outlives its blocks.
class MemorySpace {
 public:
  virtual ~MemorySpace() = default;
  virtual DeviceKind kind() const = 0;
  /// Returns zeroed memory, aligned to 16 bytes at least (the host's to a cache line), never null. Blocking. Throws
  /// OutOfMemory.
  virtual Memory allocate(int64_t bytes) = 0;
  /// Copy between host and device, blocking; to_host first waits for all work that was queued on the device.
  virtual void from_host(const void* from, void* to, int64_t bytes) = 0;
  virtual void to_host(const void* from, void* to, int64_t bytes) = 0;
  /// Copy and clear inside this memory: a GPU queues them on its stream `native` (Stream::launch), a CPU does them at
  /// once.
  virtual void copy(const void* from, void* to, int64_t bytes, void* native) = 0;
  virtual void clear(void* data, int64_t bytes, void* native) = 0;
};

/// Returns the host's own memory space, which has no state.
MemorySpace& cpu_memory();

/// Owns `size` zeroed numbers.
template <class T>
class Array {
 public:
  Array() = default;
  Array(MemorySpace& space, int64_t size)
      : space_(&space), memory_(space.allocate(size * static_cast<int64_t>(sizeof(T)))), size_(size) {}
  T* data() const { return static_cast<T*>(memory_.data()); }
  int64_t size() const { return size_; }
  void from_host(const T* from) const { space_->from_host(from, data(), memory_.bytes()); }
  void to_host(T* to) const { space_->to_host(data(), to, memory_.bytes()); }

 private:
  MemorySpace* space_ = nullptr;
  Memory memory_;
  int64_t size_ = 0;
};

}  // namespace moe
