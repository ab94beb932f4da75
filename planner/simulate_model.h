#pragma once
// `simulate --model`: a whole model under chosen schedules.
#include "planner/simulate.h"

namespace moe::planner {

int run_simulate_model(const SimulateOptions& options);

}  // namespace moe::planner
