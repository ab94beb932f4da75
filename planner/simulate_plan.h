#pragma once
// The verb `simulate` on a plan of a file, as it stands.
#include "planner/simulate.h"

namespace moe::planner {

int run_simulate_plan(const SimulateOptions& options);

}  // namespace moe::planner
