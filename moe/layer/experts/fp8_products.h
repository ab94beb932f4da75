#pragma once
// Products of rows and an expert's weights in FP8: rows are rounded in blocks of a row, weights in tiles (fp8.h), once
// a pass. Both orientations of a weight are kept, since FP8 products sum along the columns of both sides.
#include <memory>
#include <string>

#include "moe/layer/part.h"
#include "moe/tensor/fp8.h"

namespace moe {

class Fp8Products {
 public:
  /// Has room for `weights` of that many rows and columns, or columns and rows.
  Fp8Products(const PartSetup& setup, int64_t weights, int64_t rows, int64_t columns);
  /// Makes room for so many rows at a time, each as wide as a weight at most, of both phases.
  void reserve(int64_t rows);
  /// Rounds weight `which`.
  void keep(int64_t which, const Matrix& weight);
  /// Rounds rows, which products read until the next ones are taken.
  void take(const Matrix& rows, Lifetime phase);
  /// Computes out = rows W, or rows W^T, of those that were taken last; or adds it.
  void multiply(int64_t which, bool by_transpose, const Matrix& out, Into into);

 private:
  /// Shows where weight `which` is kept, as it is or `turned`.
  Fp8Matrix kept(int64_t which, bool turned, int64_t rows, int64_t cols) const;

  Math& math_;
  LayerMemory memory_;
  std::string name_;
  int64_t weights_, size_, most_scales_, most_columns_;
  Weight numbers_, scales_;  // of all weights, then of all transposes
  std::shared_ptr<const Tensor> forward_, backward_;
  Fp8Matrix rows_;
};

}  // namespace moe
