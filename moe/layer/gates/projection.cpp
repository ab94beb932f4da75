#include "moe/layer/gates/projection.h"

namespace moe {

GateProjection::GateProjection(const PartSetup& setup, int64_t width) : math_(setup.math), memory_(setup.memory) {
  const RankShape& rank = setup.rank;
  const int64_t tokens = rank.gated_tokens(), m = rank.model_dim();
  const DType dtype = sums_type(rank.dtype());
  weights_ = setup.weight("gate projection", {width, m}, dtype);
  d_weights_ = setup.weight("gate projection's gradient", {width, m}, dtype);
  const auto make = [&](Lifetime lifetime, std::string_view name, int64_t columns) {
    return memory_.of(lifetime).tensor(name, {tokens, columns}, dtype, math_.memory());
  };
  products_ = make(Lifetime::kept, "gate products", width);
  d_products_ = make(Lifetime::dense_backward, "gate products", width);
  if (dtype == rank.dtype()) return;
  wide_ = {make(Lifetime::dense_forward, "widened", m), make(Lifetime::dense_backward, "widened", m)};
}

TensorView GateProjection::widened(TensorView t, Phase phase) const {
  if (t.dtype() == weights_.view().dtype()) return t;
  const TensorView wide = wide_[static_cast<size_t>(phase)];
  math_.convert(t, wide);
  return wide;
}

void GateProjection::forward(TensorView hidden) const {
  math_.gemm(matrix(widened(hidden, Phase::forward)), transpose(matrix(weights_)), matrix(products_));
}

void GateProjection::backward(const GateBackward& pass) const {
  math_.gemm(transpose(matrix(d_products_)), matrix(widened(pass.hidden, Phase::backward)), matrix(d_weights_),
             pass.into);
  const TensorView sum = widened(pass.d_hidden, Phase::backward);
  math_.gemm(matrix(d_products_), matrix(weights_), matrix(sum), Into::add);
  if (sum.data() != pass.d_hidden.data()) math_.convert(sum, pass.d_hidden);
}

Parameter GateProjection::weight(std::string_view name, int64_t first, int64_t count) const {
  const int64_t m = weights_.view().size(1);
  const auto rows = [&](TensorView t) { return t.part(first * m, {1, count, m}); };
  return {std::string(name),
          {ShardRange{0, 1, 1}, {0, count, count}, {0, m, m}},
          rows(weights_),
          rows(d_weights_),
          SummedOver::stage};
}

}  // namespace moe
