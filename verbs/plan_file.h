#pragma once
// A plan out of a file, for verbs that take one in the place of a layer and a schedule (moe/export/plan_json.h).
#include <string>

#include "moe/cost/pricer.h"
#include "moe/cost/simulator.h"

namespace moe::verbs {

/// Reads the plan and checks that it is of a cluster of so many nodes. Throws BadInput naming the file.
Plan plan_of_file(const std::string& path, int nodes, int ranks_per_node);

/// Says what a layer's plan takes: its phases, in them the MoE part, from the start of its first task to the end of its
/// last one; and of a schedule that splits its gradients, what the backward's MoE part sends.
struct PlanTimes {
  double forward_s = 0, backward_s = 0;
  double moe_forward_s = 0, moe_backward_s = 0;
  int64_t gar_in_moe_bytes = 0;
};
/// Replays each phase alone, as the search does; a backward that begins before the forward has ended takes what the
/// plan takes longer than the forward.
PlanTimes times_of(const Plan& plan, const LayerPricer& pricer);

}  // namespace moe::verbs
