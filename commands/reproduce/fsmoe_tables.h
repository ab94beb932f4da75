#pragma once
// FSMoE's Tables 2, 5 and 6 (ASPLOS'25) beside our numbers.
#include "commands/reproduce/fsmoe_reading.h"

namespace moe::reproduce {

// FSMoE Table 2 as a measure of a reading's coefficients.

/// Returns the root mean square of ours / printed - 1 over the reading's testbed: AlltoAll, AllGather,
/// ReduceScatter, AllReduce, experts and attention of both models and phases, at k f = 2.4 whatever the reading's
/// volumes are.
double table2_error(const Reading& reading);

}  // namespace moe::reproduce
