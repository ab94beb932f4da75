#pragma once
// The data that a plan implies for one rank of a layer. All parts of the binding read it; only RunTimeSizes changes it,
// when a dropless layer learns its sizes.

#include <string_view>

#include "moe/base/enum_array.h"
#include "moe/layer/moe_layer.h"

namespace moe::layer {

struct BoundPhase {
  BoundPhase(const RankShape& rank, const Plan& plan, Phase phase);

  Cuts cuts;
  PhaseLayouts layouts;
  ExpertRows rows;
  bool copies = false;    // whether separate tasks bring rows to the experts' place
  int first_expert = -1;  // id of the first expert task
};

/// Throws WrongResult unless a plan's case is that of the layers that run it, which `owner` names in the message.
void check_case(const LayerCase& planned, const LayerCase& expected, std::string_view owner);

struct BoundPlan {
  /// Throws what LayerBinding's constructor does.
  BoundPlan(LayerState& layer, const Plan& bound);

  BoundPhase& phase(Phase phase) { return phases[phase]; }
  const PhaseLayouts& layouts(const Task& task) { return phase(task.phase).layouts; }

  Plan plan;
  EnumArray<Phase, BoundPhase, 2> phases;
  bool equal = true;  // whether the blocks of all ranks have one size
};

}  // namespace moe::layer
