#pragma once
// The verb `microbench`, and its measuring part for `tune`.
#include <functional>

#include "microbench/options.h"
#include "moe/comm/world.h"
#include "moe/record/writer.h"

namespace moe {

/// `processes`: of the run, one rank each, which all call it; none: ranks are threads.
int run_microbench(const MicrobenchOptions& options, World* processes);

}  // namespace moe
