#pragma once
// What sources that call ATen share.
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>

#include "moe/tensor/element.h"
#include "moe/tensor/tensor_view.h"

namespace moe::cpu {

/// Gives ATen's calls their thread's number of threads (cores.h) and no autograd for as long as it lives.
class AtenCalls {
 public:
  AtenCalls();

 private:
  c10::InferenceMode no_autograd_;
};

inline at::TensorOptions options_of(DType dtype) {
  return with_element(dtype,
                      [](auto zero) { return at::TensorOptions(c10::CppTypeToScalarType<decltype(zero)>::value); });
}

/// Returns the same elements, as ATen sees them.
inline at::Tensor wrap(TensorView t, at::IntArrayRef sizes, at::IntArrayRef strides) {
  return at::from_blob(t.data(), sizes, strides, options_of(t.dtype()));
}
inline at::Tensor wrap(TensorView t) { return wrap(t, {t.elements()}, {1}); }

}  // namespace moe::cpu
