#pragma once
// The verb `layerbench`: one layer under schedules, for real, beside its prediction.
#include "layerbench/options.h"

namespace moe {

int run_layerbench(const LayerbenchOptions& options);

}  // namespace moe
