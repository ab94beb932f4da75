#pragma once
// A copy of a tensor's numbers that the host can read, write and compute with.
#include <memory>

#include "moe/device/memory.h"
#include "moe/tensor/tensor_view.h"

namespace moe {

/// Whether a HostCopy converts 16-bit numbers to float32.
enum class Widen : uint8_t { no, yes };

class HostCopy {
 public:
  /// Copies the tensor `t` from its device, after all work that was enqueued there before. Blocks.
  HostCopy(TensorView t, MemorySpace& memory, Widen widen = Widen::yes);
  /// Returns the numbers on the host: a copy, or the tensor itself if it is on the CPU and needs no conversion.
  TensorView view() const { return host_view_; }
  /// Writes the numbers of view() back to the tensor, rounded to nearest even. Blocks.
  void send() const;

 private:
  MemorySpace& memory_;
  TensorView device_view_, stored_, host_view_;  // stored_: on the host, in the tensor's type
  std::unique_ptr<std::byte[]> copy_, wide_;     // not Tensors, which TensorMemory counts
};

}  // namespace moe
