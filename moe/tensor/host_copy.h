#pragma once
// A HostCopy has a tensor's numbers where the host can read them, write them and compute with them.
#include <memory>

#include "moe/device/memory.h"
#include "moe/tensor/tensor_view.h"

namespace moe {

/// Whether 16-bit numbers become float32.
enum class Widen : uint8_t { no, yes };

class HostCopy {
 public:
  /// Reads a device's tensor after everything that the device was given before. Blocking.
  HostCopy(TensorView t, MemorySpace& memory, Widen widen = Widen::yes);
  /// Views the tensor itself, or a copy of what a device holds; 16-bit numbers as they are or widened.
  TensorView view() const { return here_; }
  /// Sends what was written here to the tensor, rounded to nearest even. Blocking.
  void send() const;

 private:
  MemorySpace& memory_;
  TensorView there_, stored_, here_;          // stored_: of there_'s type
  std::unique_ptr<std::byte[]> copy_, wide_;  // no Tensors: those are counted as the layer's
};

}  // namespace moe
