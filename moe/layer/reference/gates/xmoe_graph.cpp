#include <ATen/ATen.h>
#include <algorithm>

#include "moe/layer/gates/xmoe.h"
#include "moe/layer/reference/gate_graph.h"

namespace moe {
namespace {

std::vector<GraphWeight> weights(const LayerCase& c) {
  const int64_t e = c.layer.experts, m = c.layer.model_dim,
                low = std::clamp<int64_t>(e / 2, std::min<int64_t>(16, m), m);
  return {{kGateProjection, {low, m}, m}, {kGateWeight, {e, low}, low}, {kGateTemperature, {1}, 10000, 0.3}};
}

at::Tensor unit(const at::Tensor& rows) { return rows / at::norm(rows, 2, {1}, true).clamp_min(1e-12); }

GateGraph graph(const GateGraphInputs& in) {
  const auto weight = [&](std::string_view name) { return in.weights.at(std::string(name)); };
  const at::Tensor low = at::matmul(in.hidden, weight(kGateProjection).t());
  return probability_gate(in, at::matmul(unit(low), unit(weight(kGateWeight)).t()) / weight(kGateTemperature));
}

}  // namespace

const AutogradGate kXMoeReference{weights, graph};

}  // namespace moe
