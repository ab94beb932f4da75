#include <ATen/ATen.h>

#include "moe/layer/gates/topk.h"
#include "moe/layer/reference/detail/gate_graph.h"
#include "moe/layer/reference/detail/graph_terms.h"

namespace moe {
namespace {

std::vector<GraphWeight> weights(const LayerCase& c) {
  return {{kGateWeight, {c.layer.experts, c.layer.model_dim}, c.layer.model_dim}};
}

GateGraph graph(const GateGraphInputs& in) {
  const at::Tensor logits = product(in.hidden, in.weights.at(std::string(kGateWeight)).t());
  GateGraph out = top_k_gate(in, logits);
  out.weight = softmax_of(chosen(out, logits), 1);
  out.auxiliary = auxiliary_losses(in, out, logits);
  return out;
}

}  // namespace

const AutogradGate kTopKReference{weights, graph};

}  // namespace moe
