#include <ATen/ATen.h>

#include "moe/layer/gates/sigmoid.h"
#include "moe/layer/reference/gate_graph.h"

namespace moe {
namespace {

std::vector<GraphWeight> weights(const LayerCase& c) {
  return {{kGateWeight, {c.layer.experts, c.layer.model_dim}, c.layer.model_dim}};
}

GateGraph graph(const GateGraphInputs& in) {
  const at::Tensor logits = at::matmul(in.hidden, in.weights.at(std::string(kGateWeight)).t());
  GateGraph out = top_k_gate(in, logits);
  out.weight = at::sigmoid(chosen(out, logits));
  return out;
}

}  // namespace

const AutogradGate kSigmoidReference{weights, graph};

}  // namespace moe
