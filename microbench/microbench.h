#pragma once
// The verb `microbench`, and its measuring part for `tune`.
#include <functional>

#include "microbench/options.h"
#include "moe/record/writer.h"

namespace moe {

int run_microbench(const MicrobenchOptions& options);

}  // namespace moe
