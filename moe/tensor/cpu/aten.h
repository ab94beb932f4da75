#pragma once
// Helpers for sources that call ATen, LibTorch's tensor library.
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>

#include "moe/tensor/element.h"
#include "moe/tensor/tensor_view.h"

namespace moe::cpu {

/// While this object exists, ATen calls of this thread use thread_count() threads (cores.h) and no autograd.
class AtenCalls {
 public:
  AtenCalls();

 private:
  c10::InferenceMode no_autograd_;
};

/// Returns ATen's name of an element type.
inline at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::float16:
      return at::kHalf;
    case DType::bfloat16:
      return at::kBFloat16;
    case DType::float64:
      return at::kDouble;
    case DType::float32:
      break;
  }
  return at::kFloat;
}

/// Throws BadInput for 16-bit types, which layers on the CPU do not support.
inline at::TensorOptions options_of(DType dtype) {
  return with_element(dtype, [dtype](auto) { return at::TensorOptions(scalar_type(dtype)); });
}

/// Returns an ATen view of the same memory, with sizes and strides in elements.
inline at::Tensor wrap(TensorView t, at::IntArrayRef sizes, at::IntArrayRef strides) {
  return at::from_blob(t.data(), sizes, strides, options_of(t.dtype()));
}
inline at::Tensor wrap(TensorView t) { return wrap(t, {t.elements()}, {1}); }

}  // namespace moe::cpu
