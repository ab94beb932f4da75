#include "moe/layer/gates/gate.h"

#include <array>

#include "moe/base/registry.h"
#include "moe/layer/gates/gshard.h"

namespace moe {
namespace {

constexpr std::array kGates{GateRow{"gshard", make_gshard_gate}};

}  // namespace

const GateRow& find_gate(std::string_view name) { return find_named(kGates, name, "gate"); }

Routing make_routing(const RankShape& rank) {
  const LayerShape& layer = rank.shape.layer;
  const GateRow& gate = find_gate(layer.gate);
  const bool top_k = gate.choices == Choices::top_k;
  require<BadInput>(top_k || layer.capacity_factor,
                    "gate {}: every expert takes its rows, so capacity-factor none has "
                    "no meaning, expected a number",
                    layer.gate);
  RoutingShape shape{.tokens = rank.gated_tokens(), .group_tokens = rank.tokens.count, .experts = layer.experts};
  shape.rows = layer.capacity_factor ? rank.rows : shape.group_tokens;
  shape.choices = top_k ? layer.top_k : layer.experts * (gate.choices == Choices::rows ? shape.rows : 1);
  Routing routing(shape, layer.dtype);
  if (gate.choices == Choices::rows) routing.fill = Tensor({shape.tokens, shape.choices}, layer.dtype);
  return routing;
}

std::vector<std::string_view> gate_names() {
  std::vector<std::string_view> names;
  for (const GateRow& row : kGates) names.push_back(row.name);
  return names;
}

}  // namespace moe
