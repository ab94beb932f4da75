#pragma once
// Tensors of standard normal numbers.
#include "moe/base/random.h"
#include "moe/tensor/tensor.h"

namespace moe {

template <class T = double>
void fill_random(TensorView t, uint64_t stream) {
  for (int64_t i = 0; i < t.elements(); ++i)
    t.as<T>()[i] = static_cast<T>(random_normal(7, stream, static_cast<uint64_t>(i)));
}

template <class T = double>
Tensor random_tensor(std::initializer_list<int64_t> shape, uint64_t stream) {
  Tensor t(shape, sizeof(T) == 4 ? DType::float32 : DType::float64);
  fill_random<T>(t, stream);
  return t;
}

}  // namespace moe
