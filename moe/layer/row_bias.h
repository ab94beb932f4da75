#pragma once
// A bias that is added to every row of a matrix, and its gradient, the sum of rows: products with a column of ones,
// which every device has.
#include "moe/tensor/math.h"
#include "moe/tensor/tensor.h"

namespace moe {

class RowBias {
 public:
  RowBias(Math& math, DType dtype) : math_(math), dtype_(dtype) {}
  /// Adds `bias`, which has as many elements as `to` has columns, to every row of `to`. Of a batch of matrices the
  /// steps `b` and `out` are those of the bias and of `to`.
  void add(TensorView bias, const Matrix& to, const Batch& batch = {});
  /// Sets d_bias to the sum of the rows of d, or adds that; of a batch `b` and `out` are the steps of d and of d_bias.
  void gradient(const Matrix& d, TensorView d_bias, Into into, const Batch& batch = {});

 private:
  Matrix ones(int64_t rows);

  Math& math_;
  DType dtype_;
  Tensor ones_;  // (most rows, 1)
};

}  // namespace moe
