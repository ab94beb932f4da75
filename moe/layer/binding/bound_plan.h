#pragma once
// What follows from a plan for one rank of a layer. All parts of the binding read it; RunTimeSizes alone changes
// it, where a layer that drops no token learns its sizes.

#include "moe/base/enum_array.h"
#include "moe/layer/moe_layer.h"

namespace moe::layer {

struct BoundPhase {
  BoundPhase(const RankShape& rank, const Plan& plan, Phase phase);

  Cuts cuts;
  PhaseLayouts layouts;
  ExpertRows rows;
  bool copies = false;    // a task of its own brings rows to the expert's place
  int first_expert = -1;  // the first expert task
};

struct BoundPlan {
  /// Throws what LayerBinding's constructor does.
  BoundPlan(LayerState& layer, const Plan& bound);

  BoundPhase& of(Phase phase) { return phases[phase]; }
  const PhaseLayouts& layouts(const Task& task) { return of(task.phase).layouts; }

  Plan plan;
  EnumArray<Phase, BoundPhase, 2> phases;
  bool equal = true;  // the blocks of all ranks are of one size
};

}  // namespace moe::layer
