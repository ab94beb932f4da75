#include "moe/layer/gates/projection.h"

namespace moe {

GateProjection::GateProjection(const RankShape& rank, int64_t width, Math& math) : math_(math) {
  for (Tensor* t : {&weights_, &d_weights_}) *t = Tensor({width, rank.model_dim()}, rank.dtype(), math.memory());
  for (Tensor* t : {&products_, &d_products_}) *t = Tensor({rank.gated_tokens(), width}, rank.dtype(), math.memory());
}

void GateProjection::forward(TensorView hidden) const {
  math_.gemm(matrix(hidden), transpose(matrix(weights_)), matrix(products_));
}

void GateProjection::backward(TensorView hidden, TensorView d_hidden) const {
  math_.gemm(transpose(matrix(d_products_)), matrix(hidden), matrix(d_weights_));
  math_.gemm(matrix(d_products_), matrix(weights_), matrix(d_hidden), Into::add);
}

Parameter GateProjection::weight(std::string_view name, int64_t first, int64_t count) const {
  const int64_t m = weights_.view().size(1);
  const auto rows = [&](const Tensor& t) { return t.view().part(first * m, {1, count, m}); };
  return {std::string(name),
          {Share{0, 1, 1}, {0, count, count}, {0, m, m}},
          rows(weights_),
          rows(d_weights_),
          SummedOver::stage};
}

}  // namespace moe
