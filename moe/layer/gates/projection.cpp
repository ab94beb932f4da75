#include "moe/layer/gates/projection.h"

namespace moe {

GateProjection::GateProjection(const RankShape& rank, int64_t width, Math& math) : math_(math) {
  const int64_t tokens = rank.gated_tokens(), m = rank.model_dim();
  const DType dtype = sums_type(rank.dtype());
  for (Tensor* t : {&weights_, &d_weights_}) *t = Tensor({width, m}, dtype, math.memory());
  for (Tensor* t : {&products_, &d_products_}) *t = Tensor({tokens, width}, dtype, math.memory());
  if (dtype != rank.dtype()) wide_ = Tensor({tokens, m}, dtype, math.memory());
}

TensorView GateProjection::widened(TensorView t) const {
  if (t.dtype() == weights_.view().dtype()) return t;
  math_.convert(t, wide_);
  return wide_;
}

void GateProjection::forward(TensorView hidden) const {
  math_.gemm(matrix(widened(hidden)), transpose(matrix(weights_)), matrix(products_));
}

void GateProjection::backward(TensorView hidden, TensorView d_hidden) const {
  math_.gemm(transpose(matrix(d_products_)), matrix(widened(hidden)), matrix(d_weights_));
  const TensorView sum = widened(d_hidden);
  math_.gemm(matrix(d_products_), matrix(weights_), matrix(sum), Into::add);
  if (sum.data() != d_hidden.data()) math_.convert(sum, d_hidden);
}

Parameter GateProjection::weight(std::string_view name, int64_t first, int64_t count) const {
  const int64_t m = weights_.view().size(1);
  const auto rows = [&](const Tensor& t) { return t.view().part(first * m, {1, count, m}); };
  return {std::string(name),
          {ShardRange{0, 1, 1}, {0, count, count}, {0, m, m}},
          rows(weights_),
          rows(d_weights_),
          SummedOver::stage};
}

}  // namespace moe
