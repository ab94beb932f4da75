#include <ATen/ATen.h>
#include <cmath>

#include "moe/layer/reference/graph_parts.h"

namespace moe {

std::vector<GraphWeight> expert_weights(const LayerShape& l) {
  return {{kW1, {l.experts, l.model_dim, l.hidden}, l.model_dim}, {kW2, {l.experts, l.hidden, l.model_dim}, l.hidden}};
}

at::Tensor expert_graph(const LayerShape&, const at::Tensor& rows, const GraphWeights& w, int64_t e) {
  const at::Tensor a = at::matmul(rows, w.at(std::string(kW1))[e]);
  return at::matmul(0.5 * a * (1 + at::erf(a / std::sqrt(2.0))), w.at(std::string(kW2))[e]);
}

}  // namespace moe
