#pragma once
// Values in a device's memory, which tests write and read by its streams alone.
#include <algorithm>
#include <utility>
#include <vector>

#include "moe/device/stream.h"

namespace moe {

/// Values; the constructor does not wait: the stream passes the upload before what is given to it afterwards.
template <class T>
class OnDevice {
 public:
  OnDevice(Device& device, Stream& stream, const std::vector<T>& values) : OnDevice(device, values.size()) {
    std::copy(values.begin(), values.end(), host());
    stream.copy({memory_.data(), host_.data(), memory_.bytes()});
  }
  OnDevice(Device& device, size_t size)
      : size_(size),
        memory_(device.make_memory(static_cast<int64_t>(size * sizeof(T)))),
        host_(device.make_host_memory(static_cast<int64_t>(size * sizeof(T)))) {}

  T* data() const { return static_cast<T*>(memory_.data()); }
  size_t size() const { return size_; }
  int64_t bytes() const { return memory_.bytes(); }

  /// Synchronises, and returns the values.
  std::vector<T> read(Stream& stream) const {
    stream.copy({host_.data(), memory_.data(), memory_.bytes()});
    stream.synchronize();
    return {host(), host() + size_};
  }

 private:
  T* host() const { return static_cast<T*>(host_.data()); }

  size_t size_ = 0;
  Memory memory_, host_;
};

}  // namespace moe
