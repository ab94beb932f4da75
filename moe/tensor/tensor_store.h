#pragma once
// Tensors by name. All who ask for the same name get the same memory: micro-batches of a layer share its weights, and
// passes of layers that take turns share their temporary memory.
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "moe/tensor/tensor.h"

namespace moe {

class TensorStore {
 public:
  /// Returns the tensor of this name, zeroed when it is made. It stays at its address as long as the store. Throws
  /// WrongResult if it was made or lent with another number of elements, or of another type.
  TensorView tensor(std::string_view name, std::initializer_list<int64_t> shape, DType dtype, MemorySpace& memory);
  /// Returns the tensor of this name with at least `elements`, made anew if it has fewer. A tensor that has become too
  /// small lives until the last of its users releases it.
  std::shared_ptr<const Tensor> grow_to(std::string_view name, int64_t elements, DType dtype, MemorySpace& memory);
  /// Lends `elements` to the store under that name; their memory must outlive the store.
  void lend(std::string_view name, TensorView elements) { fixed_[std::string(name)].view = elements; }

 private:
  struct FixedTensor {
    Tensor owned;  // empty if lent
    TensorView view;
  };
  std::map<std::string, FixedTensor, std::less<>> fixed_;
  std::map<std::string, std::shared_ptr<const Tensor>, std::less<>> growing_;
};

}  // namespace moe
