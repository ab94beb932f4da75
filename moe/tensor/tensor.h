#pragma once
// A Tensor owns the memory of one dense tensor on a device: allocated and zeroed once, when it is made.
#include <atomic>
#include <utility>

#include "moe/device/memory.h"
#include "moe/tensor/tensor_view.h"

namespace moe {

/// Counts of this process's Tensors: the bytes that exist now, the most bytes that existed at once since `peak_bytes`
/// was last set, and the number of Tensors made so far. They affect no result, so they are global.
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
  /// Makes a zeroed tensor in `memory`, which must outlive the tensor.
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
  /// Adds bytes to tensor_memory; its destructor subtracts them.
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
