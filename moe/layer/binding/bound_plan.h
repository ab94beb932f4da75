#pragma once
// The data that follow from a plan for one rank of a layer. All parts of the binding read them. Only RunTimeSizes
// changes them, after the ranks of a dropless layer have exchanged their row counts.

#include <string_view>

#include "moe/base/enum_array.h"
#include "moe/layer/moe_layer.h"

namespace moe::layer {

struct BoundPhase {
  BoundPhase(const RankShape& rank, const Plan& plan, Phase phase);

  ChunkCounts cuts;
  PhaseLayouts layouts;
  ExpertRows rows;
  bool copies = false;    // true if separate tasks copy rows to where the experts compute
  int first_expert = -1;  // id of the first expert task
};

/// Throws WrongResult if a plan's case differs from that of the layers that run it, which the message calls `owner`.
void check_case(const LayerCase& planned, const LayerCase& expected, std::string_view owner);

struct BoundPlan {
  /// Throws the exceptions of LayerBinding's constructor.
  BoundPlan(LayerState& layer, const Plan& bound);

  BoundPhase& phase(Phase phase) { return phases[phase]; }
  const PhaseLayouts& layouts(const Task& task) { return phase(task.phase).layouts; }

  Plan plan;
  EnumArray<Phase, BoundPhase, 2> phases;
  bool equal = true;  // true if the blocks of all ranks have the same size
};

}  // namespace moe::layer
