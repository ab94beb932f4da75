#pragma once
// A view of a dense, row-major tensor: pointer, shape, type and device. It does not own the memory.
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "moe/base/check.h"
#include "moe/base/device_kind.h"
#include "moe/base/units.h"

namespace moe {

/// A selection of a tensor's elements: of each run of `every` elements, the `count` from index `first` of the run on.
/// If `every` is 0, all elements are selected.
struct ElementSelection {
  int64_t first = 0, count = 0, every = 0;
};

class TensorView {
 public:
  static constexpr int kMaxRank = 6;
  TensorView() = default;
  TensorView(void* data, std::initializer_list<int64_t> shape, DType dtype, DeviceKind device = DeviceKind::cpu)
      : data_(data), dtype_(dtype), device_(device) {
    require<BadInput>(shape.size() <= kMaxRank, "tensor of rank {}, at most {} expected", shape.size(), kMaxRank);
    for (const int64_t extent : shape) shape_[rank_++] = extent;
  }
  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  int rank() const { return rank_; }
  int64_t size(int axis) const { return shape_[axis]; }
  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= shape_[i];
    return n;
  }
  int64_t bytes() const { return elements() * bytes_of(dtype_); }
  /// Returns the address of element `first`.
  std::byte* at(int64_t first) const { return static_cast<std::byte*>(data_) + first * bytes_of(dtype_); }
  /// Returns a view of `shape` on the consecutive elements from element `first` on.
  TensorView part(int64_t first, std::initializer_list<int64_t> shape) const {
    return {at(first), shape, dtype_, device_};
  }
  /// Returns a view with the same shape but this address, device and type.
  TensorView moved_to(void* data, DeviceKind device, DType dtype) const {
    TensorView moved = *this;
    moved.data_ = data;
    moved.device_ = device;
    moved.dtype_ = dtype;
    return moved;
  }
  /// Returns a view of all elements as a vector.
  TensorView flat() const { return part(0, {elements()}); }
  DType dtype() const { return dtype_; }
  DeviceKind device() const { return device_; }

 private:
  void* data_ = nullptr;
  std::array<int64_t, kMaxRank> shape_{};
  int rank_ = 0;
  DType dtype_ = DType::float32;
  DeviceKind device_ = DeviceKind::cpu;
};

/// Returns the same selection of `tensor` in a form whose `every` is not 0 (unless the tensor is empty).
inline ElementSelection explicit_selection(const ElementSelection& own, TensorView tensor) {
  return own.every == 0 ? ElementSelection{0, tensor.elements(), tensor.elements()} : own;
}

/// Returns the number of a tensor's elements that are selected.
inline int64_t count_of(const ElementSelection& own, TensorView tensor) {
  return own.every == 0 ? tensor.elements() : tensor.elements() / own.every * own.count;
}

}  // namespace moe
