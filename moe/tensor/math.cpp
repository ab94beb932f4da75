#include "moe/tensor/math.h"

namespace moe {

Matrix matrix(TensorView t) { return columns(t, 0, t.size(1)); }

Matrix columns(TensorView t, int64_t first, int64_t count) {
  require_equal(t.rank(), 2, "axes of a matrix");
  const int64_t width = t.size(1);
  return {t.part(first, {}).data(), t.size(0), count, width, t.dtype(), false};
}

Matrix transpose(Matrix m) {
  m.transposed = !m.transposed;
  return m;
}

}  // namespace moe
