#include "moe/layer/gates/switch.h"
#include "moe/layer/reference/detail/gate_graph.h"

namespace moe {
namespace {

GateGraph graph(const GateGraphInputs& in) { return probability_gate(in, logits_of(in)); }

}  // namespace

const AutogradGate kSwitchReference{logit_weights, graph};

}  // namespace moe
