#pragma once
// An owner of one dense tensor in a device's memory: zeroed, allocated once.
#include <atomic>
#include <memory>

#include "moe/tensor/memory_space.h"
#include "moe/tensor/tensor_view.h"

namespace moe {

/// Of all Tensors of this process: bytes now, the most since `peak_bytes` was last set, and how many were made. Tests
/// and benches compare it before and after.
struct TensorMemory {
  std::atomic<int64_t> live_bytes = 0, peak_bytes = 0, made = 0;
  void take(int64_t bytes) {
    const int64_t live = live_bytes += bytes;
    for (int64_t peak = peak_bytes; peak < live && !peak_bytes.compare_exchange_weak(peak, live);) continue;
    ++made;
  }
};
inline TensorMemory tensor_memory;

class Tensor {
 public:
  Tensor() = default;
  /// `memory` outlives it.
  Tensor(std::initializer_list<int64_t> shape, DType dtype, MemorySpace& memory = cpu_memory())
      : view_(nullptr, shape, dtype, memory.kind()) {
    memory_ = {static_cast<std::byte*>(memory.allocate(view_.bytes())), Free{&memory, view_.bytes()}};
    tensor_memory.take(view_.bytes());
    view_ = TensorView(memory_.get(), shape, dtype, memory.kind());
  }
  TensorView view() const { return view_; }
  operator TensorView() const { return view_; }
  template <class T>
  T* as() const {
    return view_.as<T>();
  }

 private:
  struct Free {
    MemorySpace* memory;
    int64_t bytes;
    void operator()(std::byte* data) const {
      memory->release(data, bytes);
      tensor_memory.live_bytes -= bytes;
    }
  };
  std::unique_ptr<std::byte, Free> memory_;
  TensorView view_;
};

}  // namespace moe
