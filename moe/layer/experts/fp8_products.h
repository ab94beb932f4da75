#pragma once
// Products of rows and an expert's weights in FP8: rows are rounded in blocks of a row, weights in tiles (fp8.h), once
// per pass. Both orientations of a weight are kept, because FP8 products sum along the columns of both sides.
#include <memory>
#include <string>

#include "moe/layer/part.h"
#include "moe/tensor/fp8.h"

namespace moe {

class Fp8Products {
 public:
  /// Makes room for `weights` weights of (rows, columns) or (columns, rows).
  Fp8Products(const PartSetup& setup, int64_t weights, int64_t rows, int64_t columns);
  /// Makes room for `rows` rows at a time, each at most as wide as a weight, of both phases.
  void reserve(int64_t rows);
  /// Rounds weight `which`.
  void round_weight(int64_t which, const Matrix& weight);
  /// Rounds rows, which products read until the next call of round_rows().
  void round_rows(const Matrix& rows, Lifetime phase);
  /// Computes out = rows W, or rows W^T, with the rows that were taken last; or adds it.
  void multiply(int64_t which, bool by_transpose, const Matrix& out, Into into);

 private:
  /// Returns the memory of weight `which`, as it is or `turned`.
  Fp8Matrix rounded_weight(int64_t which, bool turned, int64_t rows, int64_t cols) const;

  Math& math_;
  LayerMemory memory_;
  std::string name_;
  int64_t weights_, size_, max_scales_, max_columns_;
  Weight numbers_, scales_;  // those of all weights, then those of all transposes
  std::shared_ptr<const Tensor> forward_, backward_;
  Fp8Matrix rows_;
};

}  // namespace moe
