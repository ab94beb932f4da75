#include "moe/layer/gates/topk.h"
#include "moe/layer/reference/detail/gate_graph.h"

namespace moe {
namespace {

GateGraph graph(const GateGraphInputs& in) { return chosen_softmax_gate(in, logits_of(in)); }

}  // namespace

const AutogradGate kTopKReference{logit_weights, graph};

}  // namespace moe
