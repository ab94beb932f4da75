#pragma once
// Operations of the reference whose backward can also measure the terms whose sums are gradients. A gradient that
// almost vanishes (a saturated softmax's, a normalized row's) is only as exact as those terms. Includes LibTorch.
#include <ATen/core/Tensor.h>

namespace moe {

/// A scope in which backward passes on this thread compute the size of a gradient's terms instead of the gradient. Sums
/// of products add up sizes as root sums of squares, the likely size of a sum of terms with random signs; other sums
/// add up absolute values. Tensors with several uses, one of them element-wise, need use().
class TermSizes {
 public:
  TermSizes();
  ~TermSizes();
  TermSizes(const TermSizes&) = delete;
  TermSizes& operator=(const TermSizes&) = delete;
};

/// Returns the same values as an operand whose part of the gradient counts as a separate term.
at::Tensor use(const at::Tensor& x);
/// Returns a b, for matrices or for batches of equally many.
at::Tensor product(const at::Tensor& a, const at::Tensor& b);
/// Returns `count` rows, each a copy of the vector; its gradient is a sum over them.
at::Tensor repeated(const at::Tensor& vector, int64_t count);
at::Tensor softmax_of(const at::Tensor& x, int64_t axis);
at::Tensor log_softmax_of(const at::Tensor& x, int64_t axis);

}  // namespace moe
