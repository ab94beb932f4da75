#include <ATen/ATen.h>

#include "moe/layer/gates/sigmoid.h"
#include "moe/layer/reference/detail/gate_graph.h"
#include "moe/layer/reference/detail/graph_terms.h"

namespace moe {
namespace {

GateGraph graph(const GateGraphInputs& in) {
  const at::Tensor logits = logits_of(in);
  GateGraph out = top_k_gate(in, logits);
  // Written as a softmax of x and 0, whose gradient is a difference of terms, which cancel if it is saturated.
  const at::Tensor x = chosen(out, logits);
  out.weight = softmax_of(at::stack({x, at::zeros_like(x)}, -1), -1).select(-1, 0);
  return out;
}

}  // namespace

const AutogradGate kSigmoidReference{logit_weights, graph};

}  // namespace moe
