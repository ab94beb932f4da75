#pragma once
// A copy of a tensor's numbers that the host can read, write and compute with.
#include <memory>

#include "moe/device/memory.h"
#include "moe/tensor/tensor_view.h"

namespace moe {

/// Whether 16-bit numbers become float32.
enum class Widen : uint8_t { no, yes };

class HostCopy {
 public:
  /// Reads a device's tensor after all work that the device was given before. Blocking.
  HostCopy(TensorView t, MemorySpace& memory, Widen widen = Widen::yes);
  /// Returns the tensor itself, or the copy if a device holds it; 16-bit numbers as they are or widened.
  TensorView view() const { return host_view_; }
  /// Sends the numbers of view() to the tensor, rounded to nearest even. Blocking.
  void send() const;

 private:
  MemorySpace& memory_;
  TensorView device_view_, stored_, host_view_;  // stored_: in the type of there_
  std::unique_ptr<std::byte[]> copy_, wide_;     // not Tensors, because those are counted as the layer's
};

}  // namespace moe
