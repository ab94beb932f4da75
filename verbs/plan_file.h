#pragma once
// A plan out of a file, for verbs that take one in the place of a layer and a schedule (moe/export/plan_json.h).
#include <string>

#include "moe/cost/simulator.h"

namespace moe {

/// Reads the plan and checks that it is of a cluster of so many nodes. Throws BadInput naming the file.
Plan plan_of_file(const std::string& path, int nodes, int ranks_per_node);

/// What a layer's plan takes: its phases, and the gradients that it sends between the first and the last task of the
/// backward's MoE part.
struct PlanTimes {
  double forward_s = 0, backward_s = 0;
  int64_t gar_in_moe_bytes = 0;
};
PlanTimes times_of(const Plan& plan, const Timeline& timeline);

}  // namespace moe
