#include <ATen/ATen.h>

#include "moe/layer/reference/gate_graph.h"

namespace moe {
namespace {

std::vector<GraphWeight> weights(const Case& c) {
  const std::vector<int64_t> extents{c.layer.experts, c.layer.model_dim};
  return {{kGateWeight, extents, c.layer.model_dim}, {kGateNoise, extents, c.layer.model_dim}};
}

GateGraph graph(const GateGraphInputs& in) {
  const at::Tensor spread = at::matmul(in.hidden, in.weights.at(std::string(kGateNoise)).t());
  const at::Tensor logits = at::matmul(in.hidden, in.weights.at(std::string(kGateWeight)).t()) +
                            in.noise * at::log1p(at::exp(-at::abs(spread))) +
                            in.noise * at::relu(spread);  // softplus(s) = max(s, 0) + log(1 + exp(-|s|))
  GateGraph out;
  out.choices = in.shape.layer.top_k;
  out.expert = top_k_choices(in, logits);
  out.row = rows_of_choices(in.shape, out.expert);
  out.weight = at::softmax(logits.gather(1, indices(out.expert).view({logits.size(0), out.choices})), 1);
  return out;
}

}  // namespace

const GateGraphRow kGShardGraph{"gshard", weights, graph};

}  // namespace moe
