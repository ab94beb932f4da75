#pragma once
// The verb `layerbench`: one layer under schedules, for real, beside its prediction.
#include "layerbench/options.h"
#include "moe/comm/world.h"

namespace moe {

/// `processes`: of the run, one rank each, which all call it; none: ranks are threads.
int run_layerbench(const LayerbenchOptions& options, World* processes);

}  // namespace moe
