#include <ATen/ATen.h>

#include "moe/layer/gates/gshard.h"
#include "moe/layer/reference/detail/gate_graph.h"
#include "moe/layer/reference/detail/graph_terms.h"

namespace moe {
namespace {

std::vector<GraphWeight> weights(const LayerCase& c) {
  const std::vector<int64_t> extents{c.layer.experts, c.layer.model_dim};
  return {{kGateWeight, extents, c.layer.model_dim}, {kGateNoise, extents, c.layer.model_dim}};
}

GateGraph graph(const GateGraphInputs& in) {
  const at::Tensor spread = product(in.hidden, in.weights.at(std::string(kGateNoise)).t());
  // softplus(s) = -log sigmoid(-s), whose derivative autograd computes at 0 too, where hidden states are zeros.
  const at::Tensor logits = logits_of(in) - use(in.noise * at::log_sigmoid(-spread));
  return chosen_softmax_gate(in, logits);
}

}  // namespace

const AutogradGate kGShardReference{weights, graph};

}  // namespace moe
