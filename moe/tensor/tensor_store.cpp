#include "moe/tensor/tensor_store.h"

#include "moe/base/check.h"

namespace moe {

TensorView TensorStore::tensor(std::string_view name, std::initializer_list<int64_t> shape, DType dtype,
                               MemorySpace& memory) {
  auto found = fixed_.find(name);
  if (found == fixed_.end()) {
    Tensor made(shape, dtype, memory);
    const TensorView view = made;
    found = fixed_.emplace(name, FixedTensor{std::move(made), view}).first;
  }
  const TensorView all = found->second.view, view(all.data(), shape, all.dtype(), all.device());
  require<WrongResult>(view.elements() == all.elements() && all.dtype() == dtype,
                       "tensor {}: found {} elements of {}, expected {} of {}", name, all.elements(),
                       name_of(all.dtype()), view.elements(), name_of(dtype));
  return view;
}

std::shared_ptr<const Tensor> TensorStore::grow_to(std::string_view name, int64_t elements, DType dtype,
                                                   MemorySpace& memory) {
  auto found = growing_.find(name);
  if (found == growing_.end()) found = growing_.emplace(name, nullptr).first;
  std::shared_ptr<const Tensor>& tensor = found->second;
  if (tensor == nullptr || tensor->view().elements() < elements) {
    tensor = nullptr;  // frees its memory before the allocation, unless it is still in use
    tensor = std::make_shared<const Tensor>(Tensor({elements}, dtype, memory));
  }
  return tensor;
}

}  // namespace moe
