#pragma once
// An owner of one dense tensor in CPU memory: zeroed, aligned to a cache line, allocated once.
#include <cstring>
#include <memory>
#include <new>

#include "moe/layer/tensor_view.h"

namespace moe {

class Tensor {
 public:
  Tensor() = default;
  Tensor(std::initializer_list<int64_t> shape, DType dtype) : view_(nullptr, shape, dtype) {
    const auto bytes = static_cast<size_t>(view_.bytes());
    memory_.reset(static_cast<std::byte*>(::operator new(bytes + 1, kAlignment)));  // + 1: never a null pointer
    std::memset(memory_.get(), 0, bytes);
    view_ = TensorView(memory_.get(), shape, dtype);
  }
  TensorView view() const { return view_; }
  operator TensorView() const { return view_; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  TensorView view_;
};

}  // namespace moe
