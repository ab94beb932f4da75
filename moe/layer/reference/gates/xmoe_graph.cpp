#include <ATen/ATen.h>
#include <algorithm>

#include "moe/layer/gates/xmoe.h"
#include "moe/layer/reference/detail/gate_graph.h"
#include "moe/layer/reference/detail/graph_terms.h"

namespace moe {
namespace {

std::vector<GraphWeight> weights(const LayerCase& c) {
  const int64_t e = c.layer.experts, m = c.layer.model_dim,
                low = std::clamp<int64_t>(e / 2, std::min<int64_t>(16, m), m);
  return {{kGateProjection, {low, m}, m}, {kGateWeight, {e, low}, low}, {kGateTemperature, {1}, 10000, 0.3}};
}

at::Tensor unit(const at::Tensor& rows) { return use(rows) / use(at::norm(use(rows), 2, {1}, true).clamp_min(1e-12)); }

GateGraph graph(const GateGraphInputs& in) {
  const auto weight = [&](std::string_view name) { return in.weights.at(std::string(name)); };
  const at::Tensor low = product(in.hidden, weight(kGateProjection).t());
  const at::Tensor cosines = product(unit(low), unit(weight(kGateWeight)).t());
  return probability_gate(in, use(cosines) / repeated(weight(kGateTemperature), cosines.size(0)));
}

}  // namespace

const AutogradGate kXMoeReference{weights, graph};

}  // namespace moe
