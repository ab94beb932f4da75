#include <ATen/ATen.h>

#include "moe/layer/gates/switch.h"
#include "moe/layer/reference/detail/gate_graph.h"
#include "moe/layer/reference/detail/graph_terms.h"

namespace moe {
namespace {

std::vector<GraphWeight> weights(const LayerCase& c) {
  return {{kGateWeight, {c.layer.experts, c.layer.model_dim}, c.layer.model_dim}};
}

GateGraph graph(const GateGraphInputs& in) {
  return probability_gate(in, product(in.hidden, in.weights.at(std::string(kGateWeight)).t()));
}

}  // namespace

const AutogradGate kSwitchReference{weights, graph};

}  // namespace moe
