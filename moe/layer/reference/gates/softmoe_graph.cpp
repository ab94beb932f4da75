#include <ATen/ATen.h>

#include "moe/layer/gates/softmoe.h"
#include "moe/layer/reference/detail/gate_graph.h"
#include "moe/layer/reference/detail/graph_terms.h"
#include "moe/shape/volumes.h"

namespace moe {
namespace {

std::vector<GraphWeight> weights(const LayerCase& c) {
  return {{kGateWeight, {c.layer.experts * capacity_rows(c), c.layer.model_dim}, c.layer.model_dim}};
}

GateGraph graph(const GateGraphInputs& in) {
  const at::Tensor logits = logits_of(in);
  GateGraph out;
  out.choices = logits.size(1);
  out.weight = softmax_of(logits, 1);
  std::vector<at::Tensor> groups;
  for (const at::Tensor& group : logits.split(tokens_of_group(in.shape))) groups.push_back(softmax_of(group, 0));
  out.fill = at::cat(groups);
  const auto rows = static_cast<int32_t>(capacity_rows(in.shape));
  for (int64_t token = 0; token < logits.size(0); ++token)
    for (int32_t e = 0; e < in.shape.layer.experts; ++e)
      for (int32_t row = 0; row < rows; ++row) out.expert.push_back(e), out.row.push_back(row);
  return out;
}

}  // namespace

const AutogradGate kSoftMoeReference{weights, graph};

}  // namespace moe
