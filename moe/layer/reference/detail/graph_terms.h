#pragma once
// Operations of the reference whose backward can also measure the terms that gradients are sums of. A gradient that all
// but vanishes (a saturated softmax's, a normalized row's) is only as exact as those terms. Includes LibTorch.
#include <ATen/core/Tensor.h>

namespace moe {

/// While one lives, backward passes on this thread compute the size of a gradient's terms instead of the gradient. Sums
/// of products add up sizes as root sums of squares, which is what a sum of terms with random signs is likely to be;
/// other sums add up absolute values. Tensors with several uses, one of them element-wise, need use().
class TermSizes {
 public:
  TermSizes();
  ~TermSizes();
  TermSizes(const TermSizes&) = delete;
  TermSizes& operator=(const TermSizes&) = delete;
};

/// Returns the same values as an operand whose part of the gradient is a term of its own.
at::Tensor use(const at::Tensor& x);
/// Returns a b, of matrices or of batches of as many.
at::Tensor product(const at::Tensor& a, const at::Tensor& b);
/// Returns a vector as each of `count` rows; its gradient is a sum over them.
at::Tensor repeated(const at::Tensor& vector, int64_t count);
at::Tensor softmax_of(const at::Tensor& x, int64_t axis);
at::Tensor log_softmax_of(const at::Tensor& x, int64_t axis);

}  // namespace moe
