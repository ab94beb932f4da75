#pragma once
// A Tensor owns one dense tensor in a device's memory: zeroed, allocated once.
#include <atomic>
#include <utility>

#include "moe/device/memory.h"
#include "moe/tensor/tensor_view.h"

namespace moe {

/// Counts this process's Tensors: bytes now, the most since `peak_bytes` was last set, how many were made. Tests and
/// benches compare before and after. Nothing is decided by these counts, so they are global instead of being handed to
/// each Tensor.
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
  /// Makes a zeroed tensor in `memory`, which must outlive it.
  Tensor(std::initializer_list<int64_t> shape, DType dtype, MemorySpace& memory = cpu_memory())
      : view_(nullptr, shape, dtype, memory.kind()) {
    memory_ = memory.allocate(view_.bytes());
    counted_ = Counted(view_.bytes());
    view_ = TensorView(memory_.data(), shape, dtype, memory.kind());
  }
  TensorView view() const { return view_; }
  operator TensorView() const { return view_; }
  template <class T>
  T* as() const {
    return view_.as<T>();
  }

 private:
  /// Counts bytes in tensor_memory for as long as it lives.
  class Counted {
   public:
    Counted() = default;
    explicit Counted(int64_t bytes) : bytes_(bytes) { tensor_memory.take(bytes); }
    Counted(Counted&& other) noexcept : bytes_(std::exchange(other.bytes_, 0)) {}
    Counted& operator=(Counted&& other) noexcept {
      const int64_t taken = std::exchange(other.bytes_, 0);
      tensor_memory.live_bytes -= std::exchange(bytes_, taken);
      return *this;
    }
    ~Counted() { tensor_memory.live_bytes -= bytes_; }

   private:
    int64_t bytes_ = 0;
  };
  Memory memory_;
  Counted counted_;
  TensorView view_;
};

}  // namespace moe
