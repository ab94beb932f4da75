#include "moe/layer/part.h"

#include "moe/base/check.h"

namespace moe {

TensorView WeightStore::tensor(std::string_view name, std::initializer_list<int64_t> shape, DType dtype,
                               MemorySpace& memory) {
  auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    owned_.emplace_back(shape, dtype, memory);
    found = tensors_.emplace(name, owned_.back().view()).first;
  }
  const TensorView all = found->second, view(all.data(), shape, all.dtype(), all.device());
  require<WrongResult>(view.elements() == all.elements() && all.dtype() == dtype,
                       "weight {}: found {} elements of {}, expected {} of {}", name, all.elements(),
                       name_of(all.dtype()), view.elements(), name_of(dtype));
  return view;
}

}  // namespace moe
