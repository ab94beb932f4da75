#include "moe/layer/gates/gate.h"

#include <array>
#include <limits>

#include "moe/base/registry.h"
#include "moe/layer/gates/expert_choice.h"
#include "moe/layer/gates/gshard.h"
#include "moe/layer/gates/sigmoid.h"
#include "moe/layer/gates/softmoe.h"
#include "moe/layer/gates/switch.h"
#include "moe/layer/gates/topk.h"
#include "moe/layer/gates/xmoe.h"
#include "moe/shape/volumes.h"

namespace moe {
namespace {

constexpr std::array<GateRow, 7> kGates{
    {{.name = "gshard",
      .make = make_gshard_gate,
      .losses = Losses::balance_and_z,
      .reference = &kGShardReference,
      .scoring = Scoring::chosen},
     {.name = "switch",
      .make = make_switch_gate,
      .losses = Losses::balance_and_z,
      .reference = &kSwitchReference,
      .scoring = Scoring::all},
     {.name = "topk",
      .make = make_topk_gate,
      .losses = Losses::balance_and_z,
      .reference = &kTopKReference,
      .scoring = Scoring::chosen},
     {.name = "sigmoid", .make = make_sigmoid_gate, .reference = &kSigmoidReference, .scoring = Scoring::sigmoid},
     {.name = "xmoe",
      .make = make_xmoe_gate,
      .losses = Losses::balance_and_z,
      .reference = &kXMoeReference,
      .scoring = Scoring::all},
     {.name = "softmoe", .make = make_softmoe_gate, .reference = &kSoftMoeReference, .scoring = Scoring::mixture},
     {.name = "expert-choice",
      .make = make_expert_choice_gate,
      .losses = Losses::z,
      .reference = &kExpertChoiceReference,
      .scoring = Scoring::all}}};
static_assert(same_names(kGates, kGateParts), "a gate has a row here and one in moe/shape/parts.h");

Registry<GateRow>& gates() {
  static Registry<GateRow> rows(kGates);
  return rows;
}

void check_losses(const GateRow& gate, const LayerShape& layer) {
  require<Unsupported>(layer.aux_loss == 0 || gate.losses == Losses::balance_and_z,
                       "gate {}: has no load-balancing loss, found aux-loss {}, expected 0", gate.name, layer.aux_loss);
  require<Unsupported>(layer.z_loss == 0 || gate.losses != Losses::none,
                       "gate {}: has no z loss, found z-loss {}, expected 0", gate.name, layer.z_loss);
}

}  // namespace

void register_gate(const GatePart& part, GateRow row) {
  row.name = part.name;
  gate_parts().add(part, "gate");
  gates().add(row, "gate");
}

const GateRow& find_gate(std::string_view name) { return find_named(gates(), name, "gate"); }

Routing make_routing(const RankShape& rank, MemorySpace& memory) {
  const LayerShape& layer = rank.shape.layer;
  check_losses(find_gate(layer.gate), layer);
  const GatePart& gate = gate_of(layer);
  require<Unsupported>(!gate.fills_evenly() || layer.capacity_factor,
                       "gate {}: every expert takes its rows, so capacity-factor none has "
                       "no meaning, expected a number",
                       layer.gate);
  RoutingShape shape{.tokens = rank.gated_tokens(), .group_tokens = rank.tokens.count, .experts = layer.experts};
  shape.rows = layer.capacity_factor ? capacity_rows(rank.shape) : shape.group_tokens;
  shape.padding = padded_rows(rank.shape, shape.rows) - shape.rows;
  shape.choices = choices_of(rank.shape);
  require<BadInput>(shape.pairs() < std::numeric_limits<int32_t>::max(),
                    "gate {}: {} tokens with {} choices each are too many pairs, expected fewer than 2^31", layer.gate,
                    shape.tokens, shape.choices);
  const DType weights = accumulation_type(layer.dtype);
  Routing routing(shape, weights, memory);
  if (gate.choices == Choices::rows) routing.fill = Tensor({shape.tokens, shape.choices}, weights, memory);
  return routing;
}

std::vector<std::string_view> gate_names() { return row_names(gates()); }

}  // namespace moe
