#pragma once
// An owner of one dense tensor in CPU memory: zeroed, aligned to a cache line, allocated once.
#include <atomic>
#include <cstring>
#include <memory>
#include <new>

#include "moe/layer/tensor_view.h"

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
  Tensor(std::initializer_list<int64_t> shape, DType dtype) : view_(nullptr, shape, dtype) {
    const auto bytes = static_cast<size_t>(view_.bytes());
    memory_ = {static_cast<std::byte*>(::operator new(bytes + 1, kAlignment)),  // + 1: never a null pointer
               Free{view_.bytes()}};
    tensor_memory.take(view_.bytes());
    std::memset(memory_.get(), 0, bytes);
    view_ = TensorView(memory_.get(), shape, dtype);
  }
  TensorView view() const { return view_; }
  operator TensorView() const { return view_; }
  template <class T>
  T* as() const {
    return view_.as<T>();
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    int64_t bytes;
    void operator()(std::byte* memory) const {
      ::operator delete(memory, kAlignment);
      tensor_memory.live_bytes -= bytes;
    }
  };
  std::unique_ptr<std::byte, Free> memory_;
  TensorView view_;
};

}  // namespace moe
