#pragma once
// Shared by sources that call ATen.
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>

#include "moe/tensor/element.h"
#include "moe/tensor/tensor_view.h"

namespace moe::cpu {

/// While it lives, ATen's calls use their thread's number of threads (cores.h) and no autograd.
class AtenCalls {
 public:
  AtenCalls();

 private:
  c10::InferenceMode no_autograd_;
};

/// Returns ATen's name of the type, whether ATen computes in it here or not.
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

/// Throws BadInput for types that the CPU's layer does not compute in.
inline at::TensorOptions options_of(DType dtype) {
  return with_element(dtype, [dtype](auto) { return at::TensorOptions(scalar_type(dtype)); });
}

/// Returns the same elements, as ATen sees them.
inline at::Tensor wrap(TensorView t, at::IntArrayRef sizes, at::IntArrayRef strides) {
  return at::from_blob(t.data(), sizes, strides, options_of(t.dtype()));
}
inline at::Tensor wrap(TensorView t) { return wrap(t, {t.elements()}, {1}); }

}  // namespace moe::cpu
