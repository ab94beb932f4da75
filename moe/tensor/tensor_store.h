#pragma once
// A map from names to tensors. All callers that pass the same name get the same memory, so the micro-batches of a layer
// share its weights, and layers whose passes do not overlap in time share temporary memory.
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "moe/tensor/tensor.h"

namespace moe {

class TensorStore {
 public:
  /// Returns the tensor of this name; the first call makes it, zeroed. Its address stays valid as long as the store.
  /// Throws WrongResult if the store has this name with another number of elements or another type.
  TensorView tensor(std::string_view name, std::initializer_list<int64_t> shape, DType dtype, MemorySpace& memory);
  /// Returns the tensor of this name, after replacing it by a larger one if it has fewer than `elements` elements. A
  /// replaced tensor lives until its last user releases it.
  std::shared_ptr<const Tensor> grow_to(std::string_view name, int64_t elements, DType dtype, MemorySpace& memory);
  /// Makes tensor() return `elements` for this name. The caller still owns their memory, which must outlive the store.
  void lend(std::string_view name, TensorView elements) { fixed_[std::string(name)].view = elements; }

 private:
  struct FixedTensor {
    Tensor owned;  // empty if the memory belongs to the caller of lend()
    TensorView view;
  };
  std::map<std::string, FixedTensor, std::less<>> fixed_;
  std::map<std::string, std::shared_ptr<const Tensor>, std::less<>> growing_;
};

}  // namespace moe
