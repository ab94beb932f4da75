#include "moe/layer/row_bias.h"

#include <algorithm>

#include "moe/tensor/element.h"
#include "moe/tensor/host_copy.h"

namespace moe {
namespace {

Matrix row(TensorView elements) { return matrix(elements.part(0, {1, elements.elements()})); }

}  // namespace

void RowBias::add(TensorView bias, const Matrix& to, const Batch& batch) {
  if (to.rows > 0) math_.gemm(ones(to.rows), row(bias), to, Into::add, {batch.count, 0, batch.b, batch.out});
}

void RowBias::gradient(const Matrix& d, TensorView d_bias, Into into, const Batch& batch) {
  math_.gemm(transpose(ones(d.rows)), d, row(d_bias), into, {batch.count, 0, batch.b, batch.out});
}

Matrix RowBias::ones(int64_t rows) {
  if (ones_.view().rank() == 0 || ones_.view().size(0) < rows) {
    ones_ = Tensor({rows, 1}, dtype_, math_.memory());
    const HostCopy host(ones_, math_.memory());
    with_element(host.view().dtype(), [&](auto zero) {
      using T = decltype(zero);
      std::fill_n(host.view().as<T>(), rows, T(1));
    });
    host.send();
  }
  return matrix(ones_.view().part(0, {rows, 1}));
}

}  // namespace moe
